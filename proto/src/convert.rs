//! Wire forms to domain types and back: checked once, where they arrive.

use ozone_common::id::{BlockId, ClusterId, ContainerId, DatanodeId};
use ozone_common::token::{Claims, Operations};
use ozone_common::{Error, ErrorCode, RetryClass};

use crate::common::v1;

impl From<Error> for v1::Error {
    fn from(error: Error) -> Self {
        Self {
            code: error.code as u32,
            message: error.message,
            retry: error.retry as u32,
            leader: error.leader.unwrap_or_default(),
            retry_after_ms: error.retry_after_ms.unwrap_or(0),
        }
    }
}

impl From<v1::Error> for Error {
    fn from(error: v1::Error) -> Self {
        Self {
            code: ErrorCode::from_number(error.code),
            retry: RetryClass::from_number(error.retry),
            message: error.message,
            leader: (!error.leader.is_empty()).then_some(error.leader),
            retry_after_ms: (error.retry_after_ms != 0).then_some(error.retry_after_ms),
        }
    }
}

/// A container id from the wire.
pub fn container_id(id: u64) -> Result<ContainerId, Error> {
    ContainerId::new(id).ok_or_else(|| Error::invalid(format!("container id {id} is not one of 39 bits, from 1")))
}

/// A block id from the wire.
pub fn block_id(id: u64) -> Result<BlockId, Error> {
    BlockId::new(id).ok_or_else(|| Error::invalid(format!("block id {id:#x} names no valid container")))
}

/// A datanode id from the wire.
pub fn datanode_id(bytes: &[u8]) -> Result<DatanodeId, Error> {
    DatanodeId::from_slice(bytes)
}

/// A cluster id from the wire; `None` where the peer does not know its cluster.
pub fn cluster_id(bytes: &[u8]) -> Result<Option<ClusterId>, Error> {
    if bytes.is_empty() { Ok(None) } else { ClusterId::from_slice(bytes).map(Some) }
}

impl v1::Token {
    /// Puts signed claims into their wire form.
    pub fn from_claims(claims: &Claims, mac: &[u8; 16]) -> Self {
        Self {
            operation: claims.operations.0,
            container: claims.container.get(),
            first_local: claims.first_local,
            count: claims.count,
            epoch: claims.epoch,
            expires_ms: claims.expires_ms,
            max_length: claims.max_length,
            mac: bytes::Bytes::copy_from_slice(mac),
        }
    }

    /// The claims; their authenticator is checked with `TokenKey::check`.
    pub fn claims(&self) -> Result<Claims, Error> {
        Ok(Claims {
            operations: Operations(self.operation),
            container: container_id(self.container)?,
            first_local: self.first_local,
            count: self.count,
            epoch: self.epoch,
            expires_ms: self.expires_ms,
            max_length: self.max_length,
        })
    }
}

/// A field that a message must have.
pub fn required<T>(field: Option<T>, name: &str) -> Result<T, Error> {
    field.ok_or_else(|| Error::invalid(format!("field `{name}` is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_the_wire_whole() {
        for code in ErrorCode::ALL {
            let mut error = Error::new(*code, "what happened");
            error.leader = Some("127.0.0.1:9862".into());
            error.retry_after_ms = Some(20);
            assert_eq!(Error::from(v1::Error::from(error.clone())), error);
        }
    }
}
