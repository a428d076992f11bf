//! Block tokens: capabilities that the OM makes and datanodes check.
//!
//! A token is bound to blocks (a range of one container), operations, the oldest epoch, an expiry and a length, and is
//! authenticated by HMAC-SHA-256 (RFC 2104) under the cluster's block-token key, cut to 16 bytes. It is never stored.

use ring::hmac;

use crate::id::{BlockId, ContainerId};
use crate::{Error, ErrorCode};

/// What a token allows: a set of the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operations(pub u32);

impl Operations {
    /// Read bytes of the blocks.
    pub const READ: Self = Self(1);
    /// Write new blocks.
    pub const WRITE: Self = Self(2);
    /// Seal blocks at a length.
    pub const SEAL: Self = Self(4);

    /// Whether all of `other` are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Both together.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The fields of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claims {
    /// What may be done.
    pub operations: Operations,
    /// To blocks of this container,
    pub container: ContainerId,
    /// from this local number
    pub first_local: u32,
    /// on, so many of them.
    pub count: u32,
    /// Good for this epoch and later ones.
    pub epoch: u32,
    /// UTC milliseconds.
    pub expires_ms: u64,
    /// Bytes per block; 0 in tokens that do not write.
    pub max_length: u64,
}

/// A token's authenticator.
pub type Mac = [u8; 16];

/// The key that signs and checks tokens; the same in every OM and datanode of a cluster.
#[derive(Clone)]
pub struct TokenKey(hmac::Key);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

impl TokenKey {
    /// Takes key bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Signs `claims`.
    pub fn sign(&self, claims: &Claims) -> Mac {
        let tag = hmac::sign(&self.0, &encode(claims));
        tag.as_ref()[..16].try_into().expect("a SHA-256 tag has 32 bytes")
    }

    /// Checks that `mac` signs `claims`, and that they allow `operations` on `block` under `epoch` now.
    ///
    /// # Errors
    /// `InvalidToken`, saying which of these does not hold.
    pub fn check(
        &self,
        claims: &Claims,
        mac: &[u8],
        operations: Operations,
        block: BlockId,
        epoch: u32,
        now_ms: u64,
    ) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::new(ErrorCode::InvalidToken, format!("token for block {block}: {why}")));
        let want = self.sign(claims);
        let equal =
            mac.len() == want.len() && want.iter().zip(mac).fold(0, |different, (a, b)| different | (a ^ b)) == 0;
        if !equal {
            return refuse("its authenticator is wrong");
        }
        if !claims.operations.contains(operations) {
            return refuse("it does not allow this operation");
        }
        if claims.container != block.container()
            || block.local() < claims.first_local
            || block.local() - claims.first_local >= claims.count
        {
            return refuse("it is for other blocks");
        }
        if epoch < claims.epoch {
            return refuse("it is for a later epoch");
        }
        if now_ms >= claims.expires_ms {
            return refuse("it has expired");
        }
        Ok(())
    }
}

fn encode(claims: &Claims) -> [u8; 41] {
    let mut bytes = [0; 41];
    bytes[0] = 1; // version of this layout
    bytes[1..5].copy_from_slice(&claims.operations.0.to_be_bytes());
    bytes[5..13].copy_from_slice(&claims.container.get().to_be_bytes());
    bytes[13..17].copy_from_slice(&claims.first_local.to_be_bytes());
    bytes[17..21].copy_from_slice(&claims.count.to_be_bytes());
    bytes[21..25].copy_from_slice(&claims.epoch.to_be_bytes());
    bytes[25..33].copy_from_slice(&claims.expires_ms.to_be_bytes());
    bytes[33..41].copy_from_slice(&claims.max_length.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_exactly_what_it_names() {
        let key = TokenKey::new(b"secret");
        let container = ContainerId::new(7).unwrap();
        let claims = Claims {
            operations: Operations::WRITE,
            container,
            first_local: 10,
            count: 5,
            epoch: 3,
            expires_ms: 1000,
            max_length: 4096,
        };
        let mac = key.sign(&claims);
        let block = |local| container.block(local).unwrap();
        let ok = |c: &Claims, m: &[u8], op, b, epoch, now| key.check(c, m, op, b, epoch, now).is_ok();
        assert!(ok(&claims, &mac, Operations::WRITE, block(10), 3, 999));
        assert!(ok(&claims, &mac, Operations::WRITE, block(14), 4, 999));
        assert!(!ok(&claims, &mac, Operations::READ, block(10), 3, 999), "operation");
        assert!(!ok(&claims, &mac, Operations::WRITE, block(9), 3, 999), "below the range");
        assert!(!ok(&claims, &mac, Operations::WRITE, block(15), 3, 999), "beyond the range");
        assert!(!ok(&claims, &mac, Operations::WRITE, block(10), 2, 999), "older epoch");
        assert!(!ok(&claims, &mac, Operations::WRITE, block(10), 3, 1000), "expired");
        assert!(!ok(&claims, &mac[..15], Operations::WRITE, block(10), 3, 999), "short authenticator");
        let other = ContainerId::new(8).unwrap().block(10).unwrap();
        assert!(!ok(&claims, &mac, Operations::WRITE, other, 3, 999), "container");
        assert!(TokenKey::new(b"other").check(&claims, &mac, Operations::WRITE, block(10), 3, 999).is_err());
        for change in 0..7 {
            let mut c = claims;
            match change {
                0 => c.operations = Operations::WRITE.and(Operations::READ),
                1 => c.container = ContainerId::new(9).unwrap(),
                2 => c.first_local = 0,
                3 => c.count = 500,
                4 => c.epoch = 0,
                5 => c.expires_ms = u64::MAX,
                _ => c.max_length = u64::MAX,
            }
            assert_ne!(key.sign(&c), mac, "field {change} is signed");
        }
    }
}
