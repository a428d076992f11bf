//! Block tokens: made here, checked by datanodes, stored nowhere.

use ozone_common::id::{BlockId, ContainerId};
use ozone_common::token::{Claims, Operations, TokenKey};
use ozone_proto::common::v1::Token;

use crate::config::TOKEN_SKEW_MS;

/// Makes tokens.
pub struct TokenMaker {
    key: TokenKey,
    read_life_ms: u64,
}

/// Consecutive blocks of a container under an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Which container.
    pub container: ContainerId,
    /// The first block.
    pub first_local: u32,
    /// How many.
    pub count: u32,
    /// The oldest epoch the token is good for.
    pub epoch: u32,
}

impl TokenMaker {
    /// Takes the cluster's key and how long a token for reading lives.
    pub const fn new(key: TokenKey, read_life_ms: u64) -> Self {
        Self { key, read_life_ms }
    }

    fn make(&self, claims: &Claims) -> Token {
        Token::from_claims(claims, &self.key.sign(claims))
    }

    /// For reading one block.
    pub fn read(&self, block: BlockId, epoch: u32, now_ms: u64) -> Token {
        self.make(&Claims {
            operations: Operations::READ,
            container: block.container(),
            first_local: block.local(),
            count: 1,
            epoch,
            expires_ms: now_ms.saturating_add(self.read_life_ms),
            max_length: 0,
        })
    }

    /// For writing the blocks of a grant, until the skew bound before it ends.
    pub fn write(&self, span: Span, grant_expires_ms: u64, max_length: u64) -> Token {
        self.make(&Claims {
            operations: Operations::WRITE,
            container: span.container,
            first_local: span.first_local,
            count: span.count,
            epoch: span.epoch,
            expires_ms: grant_expires_ms.saturating_sub(TOKEN_SKEW_MS),
            max_length,
        })
    }

    /// For sealing the blocks of a grant at what the survivors hold.
    pub fn seal(&self, span: Span, grant_expires_ms: u64) -> Token {
        self.make(&Claims {
            operations: Operations::SEAL,
            container: span.container,
            first_local: span.first_local,
            count: span.count,
            epoch: span.epoch,
            expires_ms: grant_expires_ms.saturating_sub(TOKEN_SKEW_MS),
            max_length: 0,
        })
    }
}
