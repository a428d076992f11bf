//! What clients are told when something goes wrong: S3's codes, and the one map from ours to them.
//!
//! Source: S3 API Reference, "Error responses". 5xx is answered only where the server is at fault, since clients retry it.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use ozone_common::{Error, ErrorCode};

macro_rules! s3_codes {
    ($($name:ident $status:literal;)*) => {
        /// S3's error codes, as far as this gateway answers them.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(crate) enum S3Code {
            $(#[doc = concat!("`", stringify!($name), "`, HTTP ", stringify!($status), ".")] $name,)*
        }
        impl S3Code {
            /// Every code there is.
            #[cfg(test)]
            pub const ALL: &'static [S3Code] = &[$(Self::$name),*];
            /// As it stands in the answer.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
            /// The HTTP status that goes with it.
            pub fn status(self) -> StatusCode {
                let number: u16 = match self { $(Self::$name => $status,)* };
                StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    };
}

s3_codes! {
    AccessControlListNotSupported 400;
    AccessDenied 403;
    AuthorizationHeaderMalformed 400;
    AuthorizationQueryParametersError 400;
    BadDigest 400;
    BucketAlreadyExists 409;
    BucketAlreadyOwnedByYou 409;
    BucketNotEmpty 409;
    EntityTooLarge 400;
    EntityTooSmall 400;
    IncompleteBody 400;
    InternalError 500;
    InvalidAccessKeyId 403;
    InvalidArgument 400;
    InvalidBucketAclWithObjectOwnership 400;
    InvalidBucketName 400;
    InvalidDigest 400;
    InvalidLocationConstraint 400;
    InvalidPart 400;
    InvalidPartNumber 416;
    InvalidPartOrder 400;
    InvalidRange 416;
    InvalidRequest 400;
    InvalidStorageClass 400;
    InvalidToken 400;
    InvalidURI 400;
    KeyTooLongError 400;
    MalformedTrailerError 400;
    MalformedXML 400;
    MaxMessageLengthExceeded 400;
    MetadataTooLarge 400;
    MissingContentLength 411;
    NoSuchBucket 404;
    NoSuchBucketPolicy 404;
    NoSuchCORSConfiguration 404;
    NoSuchKey 404;
    NoSuchLifecycleConfiguration 404;
    NoSuchPublicAccessBlockConfiguration 404;
    NoSuchTagSet 404;
    NoSuchUpload 404;
    NoSuchVersion 404;
    NoSuchWebsiteConfiguration 404;
    NotImplemented 501;
    ObjectLockConfigurationNotFoundError 404;
    OwnershipControlsNotFoundError 404;
    PreconditionFailed 412;
    ReplicationConfigurationNotFoundError 404;
    RequestHeaderSectionTooLarge 400;
    RequestTimeTooSkewed 403;
    RequestTimeout 400;
    ServerSideEncryptionConfigurationNotFoundError 404;
    ServiceUnavailable 503;
    SignatureDoesNotMatch 403;
    SlowDown 503;
    TooManyBuckets 400;
    XAmzContentSHA256Mismatch 400;
}

/// An error as a client sees it.
#[derive(Clone, Debug)]
pub(crate) struct S3Error {
    /// For the client's program.
    pub code: S3Code,
    /// Ours, where it comes from within.
    pub cause: Option<Box<Error>>,
    /// For the person.
    pub message: Cow<'static, str>,
    /// Further elements of the answer's document, such as `BucketName`.
    pub details: Vec<(&'static str, String)>,
    /// Headers of the answer, such as `Content-Range` of an unsatisfiable range.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// `Result` with [`S3Error`].
pub(crate) type S3Result<T> = Result<T, S3Error>;

impl S3Error {
    /// An error with a message of its own.
    pub fn new(code: S3Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, cause: None, message: message.into(), details: Vec::new(), headers: Vec::new() }
    }

    /// `InvalidArgument` about the argument `name`, as S3 words it.
    pub fn invalid_argument(name: &str, value: &[u8], message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(S3Code::InvalidArgument, message)
            .detail("ArgumentName", name)
            .detail("ArgumentValue", String::from_utf8_lossy(value))
    }

    /// `NotImplemented`, naming what was asked for.
    pub fn not_implemented(what: impl fmt::Display) -> Self {
        Self::new(S3Code::NotImplemented, format!("{what} is not implemented by this server"))
    }

    /// The same with a further element in its document.
    pub fn detail(mut self, element: &'static str, text: impl Into<String>) -> Self {
        self.details.push((element, text.into()));
        self
    }

    /// The answer's document. Control characters of names in it are shown as U+FFFD: XML cannot hold them, and a client whose reader stops
    /// there would not learn the code.
    pub fn document(&self, resource: &str, request_id: &str) -> Bytes {
        let printable = |text: &str| text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "\u{fffd}");
        crate::xml::plain_document("Error", |error| {
            error.text("Code", self.code.name());
            error.text("Message", &printable(&self.message));
            for (element, text) in &self.details {
                error.text(element, &printable(text));
            }
            error.text("Resource", resource);
            error.text("RequestId", request_id);
        })
    }

    /// Tells the log what a client is not told; to be called where the error becomes an answer.
    pub fn log(&self, request_id: &str) {
        if self.code == S3Code::InternalError {
            let error = self.cause.as_ref().map_or_else(|| self.to_string(), ToString::to_string);
            tracing::error!(request_id, error, "a request failed by a fault of our own");
        } else {
            tracing::debug!(request_id, error = %self, "a request is refused");
        }
    }

    /// The same with a header on its answer.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for S3Error {}

impl From<S3Code> for S3Error {
    fn from(code: S3Code) -> Self {
        Self::new(code, message(code))
    }
}

/// Ours to S3's. What goes on inside is for our logs: of a fault of our own a client learns only that there was one.
impl From<Error> for S3Error {
    fn from(error: Error) -> Self {
        let code = s3_code(error.code);
        let told = match code {
            S3Code::InternalError => Self::from(code),
            _ => Self::new(code, error.message.clone()),
        };
        Self { cause: Some(Box::new(error)), ..told }
    }
}

/// The one map from our codes to S3's.
fn s3_code(code: ErrorCode) -> S3Code {
    use ErrorCode as E;
    use S3Code as S;
    match code {
        E::Internal => S::InternalError,
        E::InvalidArgument => S::InvalidArgument,
        E::NotSupported => S::NotImplemented,
        E::PermissionDenied => S::AccessDenied,
        // It is the gateway that the cluster refused, not the gateway's client.
        E::Unauthenticated => S::InternalError,
        E::DeadlineExceeded => S::ServiceUnavailable,
        E::Overloaded => S::SlowDown,
        E::Unavailable => S::ServiceUnavailable,
        E::NotLeader => S::ServiceUnavailable,
        E::ShardMoved => S::ServiceUnavailable,
        E::SessionExpired => S::ServiceUnavailable,
        E::ShuttingDown => S::ServiceUnavailable,
        E::TooLarge => S::EntityTooLarge,
        // The volume of S3's buckets comes with the first of them.
        E::VolumeNotFound => S::NoSuchBucket,
        E::VolumeAlreadyExists => S::InternalError,
        E::VolumeNotEmpty => S::InternalError,
        E::InvalidVolumeName => S::InternalError,
        E::BucketNotFound => S::NoSuchBucket,
        E::BucketAlreadyExists => S::BucketAlreadyExists,
        E::BucketNotEmpty => S::BucketNotEmpty,
        E::BucketChanged => S::ServiceUnavailable,
        E::InvalidBucketName => S::InvalidBucketName,
        E::TooManyBuckets => S::TooManyBuckets,
        E::KeyNotFound => S::NoSuchKey,
        E::KeyAlreadyExists => S::PreconditionFailed,
        E::InvalidKeyName => S::KeyTooLongError,
        // The object was replaced between look-up and first byte, again and again.
        E::KeyChanged => S::ServiceUnavailable,
        E::PreconditionFailed => S::PreconditionFailed,
        E::MetadataTooLarge => S::MetadataTooLarge,
        E::UploadNotFound => S::NoSuchUpload,
        E::InvalidPart => S::InvalidPart,
        E::InvalidPartOrder => S::InvalidPartOrder,
        E::EntityTooSmall => S::EntityTooSmall,
        E::ChecksumMismatch => S::BadDigest,
        E::SecretNotFound => S::InvalidAccessKeyId,
        E::SecretAlreadyExists => S::InternalError,
        E::GrantExpired => S::ServiceUnavailable,
        E::InvalidBlock => S::InternalError,
        E::SafeMode => S::ServiceUnavailable,
        E::InsufficientDatanodes => S::ServiceUnavailable,
        E::ContainerNotFound => S::InternalError,
        E::ContainerNotOpen => S::ServiceUnavailable,
        E::ReplicasUnknown => S::ServiceUnavailable,
        E::StaleEpoch => S::ServiceUnavailable,
        E::BlockNotFound => S::InternalError,
        E::BlockDeleted => S::InternalError,
        E::Corrupt => S::InternalError,
        E::InvalidToken => S::InternalError,
        E::VolumeFailed => S::ServiceUnavailable,
        E::DiskFull => S::ServiceUnavailable,
        E::OutOfOrder => S::InternalError,
    }
}

/// The message where nothing more is known than the code.
fn message(code: S3Code) -> &'static str {
    use S3Code as S;
    match code {
        S::AccessControlListNotSupported => "the bucket does not allow ACLs",
        S::AccessDenied => "access denied",
        S::BadDigest => "the digest that was named is not that of the bytes that came",
        S::BucketAlreadyOwnedByYou => "the bucket exists already, and is yours",
        S::BucketAlreadyExists => "the bucket exists already, and is not yours",
        S::BucketNotEmpty => "the bucket still has keys",
        S::EntityTooLarge => "more bytes than one request may carry",
        S::IncompleteBody => "fewer bytes came than the request's headers say",
        S::InternalError => "an internal error occurred; the server's log tells more under this request id",
        S::InvalidAccessKeyId => "no such access key",
        S::InvalidBucketAclWithObjectOwnership => "buckets have no ACLs here: their owner owns every object",
        S::InvalidDigest => "Content-MD5 is not the base64 of 16 bytes",
        S::InvalidRange => "the range cannot be satisfied",
        S::KeyTooLongError => "a key has at most 1,024 bytes",
        S::MalformedXML => "the document is not well-formed, or not what this operation takes",
        S::MissingContentLength => "a Content-Length header is needed",
        S::NoSuchBucket => "no such bucket",
        S::NoSuchKey => "no such key",
        S::NoSuchUpload => "no such upload: it may have been completed or aborted",
        S::PreconditionFailed => "a condition of the request does not hold",
        S::SignatureDoesNotMatch => "the signature is not what this request and the secret of its access key give",
        S::SlowDown => "the server is busy; try again later",
        S::XAmzContentSHA256Mismatch => "x-amz-content-sha256 is not the hash of the bytes that came",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_ours_has_one_of_theirs_with_an_error_status() {
        for code in ErrorCode::ALL {
            let error = S3Error::from(Error::new(*code, "what happened"));
            assert!(error.code.status().as_u16() >= 400, "{code:?}");
            let told = error.message == "what happened";
            assert_eq!(told, error.code != S3Code::InternalError, "{code:?}: insides are not told");
        }
    }

    #[test]
    fn statuses_are_http() {
        for code in S3Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
            assert!(!S3Error::from(*code).message.is_empty());
        }
    }
}
