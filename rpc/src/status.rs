//! Our errors as gRPC statuses and back. The whole error travels in the status' details; the code is for foreign clients.

use bytes::Bytes;
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1;
use prost::Message;
use tonic::{Code, Status};

/// Puts an error into a status.
pub fn to_status(error: Error) -> Status {
    let code = grpc_code(error.code);
    let message = error.message.clone();
    Status::with_details(code, message, Bytes::from(v1::Error::from(error).encode_to_vec()))
}

/// The error of a status; one that is not ours (made by the transport) becomes `Unavailable`.
pub fn from_status(status: &Status) -> Error {
    if !status.details().is_empty()
        && let Ok(error) = v1::Error::decode(status.details())
    {
        return error.into();
    }
    match status.code() {
        Code::Unimplemented => Error::new(ErrorCode::NotSupported, "the peer does not serve this"),
        Code::ResourceExhausted | Code::OutOfRange => Error::new(ErrorCode::TooLarge, status.message()),
        _ => {
            let cause = std::error::Error::source(status).map(crate::channel::innermost);
            Error::new(ErrorCode::Unavailable, cause.unwrap_or_else(|| status.message().to_owned()))
        }
    }
}

fn grpc_code(code: ErrorCode) -> Code {
    use ErrorCode as E;
    match code {
        E::Internal => Code::Internal,
        E::InvalidArgument
        | E::InvalidVolumeName
        | E::InvalidBucketName
        | E::InvalidKeyName
        | E::MetadataTooLarge
        | E::InvalidPart
        | E::InvalidPartOrder
        | E::EntityTooSmall
        | E::InvalidBlock
        | E::OutOfOrder
        | E::TooLarge => Code::InvalidArgument,
        E::NotSupported => Code::Unimplemented,
        E::PermissionDenied => Code::PermissionDenied,
        E::Unauthenticated | E::InvalidToken => Code::Unauthenticated,
        E::DeadlineExceeded => Code::DeadlineExceeded,
        E::Overloaded | E::DiskFull | E::TooManyBuckets => Code::ResourceExhausted,
        E::Unavailable
        | E::ShuttingDown
        | E::SafeMode
        | E::InsufficientDatanodes
        | E::ReplicasUnknown
        | E::VolumeFailed => Code::Unavailable,
        E::VolumeNotFound
        | E::BucketNotFound
        | E::KeyNotFound
        | E::UploadNotFound
        | E::SecretNotFound
        | E::ContainerNotFound
        | E::BlockNotFound
        | E::BlockDeleted => Code::NotFound,
        E::VolumeAlreadyExists | E::BucketAlreadyExists | E::KeyAlreadyExists | E::SecretAlreadyExists => {
            Code::AlreadyExists
        }
        E::NotLeader
        | E::ShardMoved
        | E::SessionExpired
        | E::VolumeNotEmpty
        | E::BucketNotEmpty
        | E::BucketChanged
        | E::KeyChanged
        | E::PreconditionFailed
        | E::GrantExpired
        | E::ContainerNotOpen
        | E::StaleEpoch => Code::FailedPrecondition,
        E::ChecksumMismatch | E::Corrupt => Code::DataLoss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_cross_whole_and_foreign_statuses_are_unavailable() {
        let mut error = Error::new(ErrorCode::NotLeader, "member 2 does not lead");
        error.leader = Some("127.0.0.1:9862".to_owned());
        assert_eq!(from_status(&to_status(error.clone())), error);
        assert_eq!(from_status(&Status::unavailable("gone")).code, ErrorCode::Unavailable);
        assert_eq!(from_status(&Status::unimplemented("")).code, ErrorCode::NotSupported);
    }
}
