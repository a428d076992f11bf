//! From the core's and the store's errors to the one that crosses process boundaries.

use ozone_common::{Error, ErrorCode, RetryClass};

use crate::core::Stop;

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Refused(error) => error,
            Stop::Store(error) => store(&error),
        }
    }
}

/// A store that cannot be read. Another member may serve; this one cannot.
pub(crate) fn store(error: &ozone_kvstore::Error) -> Error {
    tracing::error!(%error, "the store of the key-space manager cannot be read");
    Error::new(ErrorCode::Internal, format!("the OM's store: {error}")).with_retry(RetryClass::Same)
}
