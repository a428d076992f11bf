//! Who may do what with a block: tokens.
//!
//! A check is one HMAC over 41 bytes, about 0.3 µs: less than remembering which were checked before would cost in
//! memory and doubt. A block written in chunks is checked once, when it is opened.

use std::sync::Arc;

use bytes::Bytes;
use ozone_common::env::Clock;
use ozone_common::id::{BlockId, DatanodeId};
use ozone_common::token::{Claims, Operations, TokenKey};
use ozone_common::{Error, ErrorCode, Result};
use ozone_proto::common::v1::Token;

/// LIMIT: nodes that a container may have.
const MEMBERS_MAX: usize = 32;

/// The check of tokens.
pub(crate) struct Access {
    key: TokenKey,
    clock: Arc<dyn Clock>,
    datanode: DatanodeId,
}

impl Access {
    /// With the cluster's key.
    pub fn new(key: TokenKey, clock: Arc<dyn Clock>, datanode: DatanodeId) -> Self {
        Self { key, clock, datanode }
    }

    /// Checks that `token` allows `operations` on `block` under `epoch` now.
    ///
    /// # Errors
    /// `InvalidToken`, saying what does not hold.
    pub fn check(&self, token: Option<&Token>, operations: Operations, block: BlockId, epoch: u32) -> Result<Claims> {
        let refuse = |why: &str| Error::new(ErrorCode::InvalidToken, format!("token for block {block}: {why}"));
        let token = token.ok_or_else(|| refuse("there is none"))?;
        let claims = token.claims().map_err(|error| refuse(&error.message))?;
        self.key.check(&claims, &token.mac, operations, block, epoch, self.clock.now_ms())?;
        Ok(claims)
    }

    /// Checks the members that a writer names for a container: they are recorded with its replica, and this datanode is one.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_members(&self, members: &[Bytes]) -> Result<()> {
        if members.len() > MEMBERS_MAX || members.iter().any(|member| member.len() != 16) {
            return Err(Error::invalid(format!("members: at most {MEMBERS_MAX} ids of 16 bytes are taken")));
        }
        if !members.iter().any(|member| member[..] == self.datanode.as_bytes()[..]) {
            return Err(Error::invalid(format!("members: datanode {} is not among them", self.datanode)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ozone_common::env::ManualClock;
    use ozone_common::id::ContainerId;
    use proptest::prelude::*;

    use super::*;

    fn access() -> Access {
        Access::new(TokenKey::new(b"key"), Arc::new(ManualClock::at(1000)), DatanodeId::from_bytes([1; 16]))
    }

    fn block(local: u32) -> BlockId {
        ContainerId::new(7).unwrap().block(local).unwrap()
    }

    #[test]
    fn a_token_is_needed_and_must_be_for_this() {
        let access = access();
        let claims = Claims {
            operations: Operations::WRITE,
            container: block(1).container(),
            first_local: 1,
            count: 2,
            epoch: 3,
            expires_ms: 1001,
            max_length: 10,
        };
        let token = Token::from_claims(&claims, &TokenKey::new(b"key").sign(&claims));
        assert_eq!(access.check(Some(&token), Operations::WRITE, block(2), 3).unwrap(), claims);
        let other_key = Token::from_claims(&claims, &TokenKey::new(b"other").sign(&claims));
        let no_container = Token { container: 0, ..token.clone() };
        let stretched = Token { count: 3, ..token.clone() };
        for (token, operations, local, epoch) in [
            (None, Operations::WRITE, 1, 3),
            (Some(&other_key), Operations::WRITE, 1, 3),
            (Some(&no_container), Operations::WRITE, 1, 3),
            (Some(&stretched), Operations::WRITE, 1, 3),
            (Some(&token), Operations::READ, 1, 3),
            (Some(&token), Operations::WRITE, 3, 3),
            (Some(&token), Operations::WRITE, 1, 2),
        ] {
            let error = access.check(token, operations, block(local), epoch).unwrap_err();
            assert!(error.code == ErrorCode::InvalidToken && error.message.starts_with("token for block "), "{error}");
        }
    }

    #[test]
    fn members_hold_this_datanode() {
        let access = access();
        let member = |n: u8, length: usize| Bytes::from(vec![n; length]);
        access.check_members(&[member(2, 16), member(1, 16)]).unwrap();
        for wrong in [vec![], vec![member(2, 16)], vec![member(1, 15)], vec![member(1, 16); 33]] {
            assert_eq!(access.check_members(&wrong).unwrap_err().code, ErrorCode::InvalidArgument);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_tokens_are_refused(
            operation: u32, container: u64, first_local: u32, count: u32, epoch: u32, expires_ms: u64, max_length: u64,
            mac in prop::collection::vec(any::<u8>(), 0..40), local in 1..100_u32,
        ) {
            let token = Token { operation, container, first_local, count, epoch, expires_ms, max_length, mac: mac.into() };
            let refused = access().check(Some(&token), Operations(operation), block(local), epoch).unwrap_err();
            prop_assert_eq!(refused.code, ErrorCode::InvalidToken);
        }
    }
}
