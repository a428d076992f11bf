//! The one error that crosses process boundaries.
//!
//! It has two readers: the program looks at [`ErrorCode`] and [`RetryClass`], the person at the message, which says
//! what was attempted, on what, and what would be right. Modules keep richer enums of their own and turn them into
//! this one at their service's edge.

use std::fmt;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $retry:ident;)*) => {
        /// What went wrong, in the field's words. Numbers are part of the wire format and never reused.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        pub enum ErrorCode {
            $($(#[$doc])* $name = $number,)*
        }
        impl ErrorCode {
            /// Every code there is.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name),*];
            /// The code of a number from the wire; `Internal` where a newer peer knows more than we do.
            pub fn from_number(number: u32) -> Self {
                match number { $($number => Self::$name,)* _ => Self::Internal }
            }
            /// Its name as users see it, such as `KEY_NOT_FOUND`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
            /// How a caller may go on, unless the error says otherwise.
            pub const fn default_retry(self) -> RetryClass {
                match self { $(Self::$name => RetryClass::$retry,)* }
            }
        }
    };
}

codes! {
    /// A fault of our own.
    Internal = 1, "INTERNAL_ERROR", Unknown;
    /// A field of the request is wrong.
    InvalidArgument = 2, "INVALID_ARGUMENT", Never;
    /// The request is known, but this build does not serve it.
    NotSupported = 3, "NOT_SUPPORTED", Never;
    /// Authenticated, but not allowed.
    PermissionDenied = 4, "PERMISSION_DENIED", Never;
    /// Not authenticated: a wrong key, another cluster, a stale or replayed proof.
    Unauthenticated = 5, "UNAUTHENTICATED", Never;
    /// The time given by the caller ran out; the call may have taken effect.
    DeadlineExceeded = 6, "DEADLINE_EXCEEDED", Unknown;
    /// A bounded queue is full.
    Overloaded = 7, "OVERLOADED", Same;
    /// The peer cannot be reached or the connection broke; the call may have taken effect.
    Unavailable = 8, "UNAVAILABLE", Unknown;
    /// This member does not lead.
    NotLeader = 9, "NOT_LEADER", FollowLeader;
    /// The shard map has moved on.
    ShardMoved = 10, "SHARD_MOVED", AfterRefresh;
    /// The caller's session ended; a call of it is refused, never executed.
    SessionExpired = 11, "SESSION_EXPIRED", Never;
    /// The process is stopping.
    ShuttingDown = 12, "SHUTTING_DOWN", Unknown;
    /// A message is larger than the limit.
    TooLarge = 13, "TOO_LARGE", Never;

    /// No such volume.
    VolumeNotFound = 100, "VOLUME_NOT_FOUND", Never;
    /// The volume is there already.
    VolumeAlreadyExists = 101, "VOLUME_ALREADY_EXISTS", Never;
    /// The volume still has buckets.
    VolumeNotEmpty = 102, "VOLUME_NOT_EMPTY", Never;
    /// Not a valid volume name.
    InvalidVolumeName = 103, "INVALID_VOLUME_NAME", Never;
    /// No such bucket.
    BucketNotFound = 110, "BUCKET_NOT_FOUND", Never;
    /// The bucket is there already.
    BucketAlreadyExists = 111, "BUCKET_ALREADY_EXISTS", Never;
    /// The bucket still has keys or uploads.
    BucketNotEmpty = 112, "BUCKET_NOT_EMPTY", Never;
    /// Not a valid bucket name.
    InvalidBucketName = 113, "INVALID_BUCKET_NAME", Never;
    /// The cluster has as many buckets as it may have.
    TooManyBuckets = 114, "TOO_MANY_BUCKETS", Never;
    /// The bucket was deleted and made anew since the caller looked it up.
    BucketChanged = 115, "BUCKET_CHANGED", AfterRefresh;
    /// No such key.
    KeyNotFound = 120, "KEY_NOT_FOUND", Never;
    /// The key is there already, and the request asked that it be absent.
    KeyAlreadyExists = 121, "KEY_ALREADY_EXISTS", Never;
    /// Not a valid key: empty, or longer than the limit.
    InvalidKeyName = 122, "INVALID_KEY_NAME", Never;
    /// The key is not the generation that the request names.
    KeyChanged = 123, "KEY_CHANGED", AfterRefresh;
    /// A condition of the request does not hold.
    PreconditionFailed = 124, "PRECONDITION_FAILED", Never;
    /// User metadata over the limit.
    MetadataTooLarge = 125, "METADATA_TOO_LARGE", Never;
    /// No such multipart upload.
    UploadNotFound = 130, "NO_SUCH_MULTIPART_UPLOAD_ERROR", Never;
    /// A part named at completion is absent or another.
    InvalidPart = 131, "INVALID_PART", Never;
    /// Parts named at completion are not in ascending order.
    InvalidPartOrder = 132, "INVALID_PART_ORDER", Never;
    /// A part other than the last is smaller than the limit.
    EntityTooSmall = 133, "ENTITY_TOO_SMALL", Never;
    /// A checksum named by the client is not that of the bytes.
    ChecksumMismatch = 134, "CHECKSUM_MISMATCH", Never;
    /// No secret for this user or access key.
    SecretNotFound = 140, "S3_SECRET_NOT_FOUND", Never;
    /// The user has a secret already.
    SecretAlreadyExists = 141, "S3_SECRET_ALREADY_EXISTS", Never;

    /// The grant ended or never was; nothing it covers can be committed any more.
    GrantExpired = 150, "GRANT_EXPIRED", AfterRefresh;
    /// A block named by a commit is not the writer's to commit.
    InvalidBlock = 151, "INVALID_BLOCK", Never;
    /// The SCM is in safe mode.
    SafeMode = 160, "SAFE_MODE_EXCEPTION", Same;
    /// Too few datanodes can take a replica.
    InsufficientDatanodes = 161, "INSUFFICIENT_DATANODES", Same;
    /// No such container.
    ContainerNotFound = 162, "CONTAINER_NOT_FOUND", Never;
    /// The container takes no more blocks or appends.
    ContainerNotOpen = 163, "CONTAINER_NOT_OPEN", OtherReplica;
    /// The container's replicas have not been reported yet.
    ReplicasUnknown = 164, "REPLICAS_UNKNOWN", Same;
    /// A block's epoch at the datanode is higher than the writer's: someone sealed it.
    StaleEpoch = 165, "STALE_EPOCH", AfterRefresh;
    /// The replica does not have the block, or not as much of it, or not under this epoch.
    BlockNotFound = 166, "BLOCK_NOT_FOUND", OtherReplica;
    /// The block was deleted; a late write of it is refused.
    BlockDeleted = 167, "BLOCK_DELETED", Never;
    /// Bytes on this replica are not what their checksum says.
    Corrupt = 168, "CORRUPT", OtherReplica;
    /// The block token is wrong, expired, or for something else.
    InvalidToken = 169, "INVALID_TOKEN", AfterRefresh;
    /// The disk volume failed.
    VolumeFailed = 170, "DISK_VOLUME_FAILED", OtherReplica;
    /// No space left on the disk volume.
    DiskFull = 171, "DISK_FULL", OtherReplica;
    /// A chunk does not continue where the block ends.
    OutOfOrder = 172, "OUT_OF_ORDER", Never;
}

/// How a caller may go on after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum RetryClass {
    /// The same request will fail again.
    Never = 0,
    /// The same request, later.
    Same = 1,
    /// The same request at another replica.
    OtherReplica = 2,
    /// The same request at the leader.
    FollowLeader = 3,
    /// After fetching fresh state (locations, grants, shard map).
    AfterRefresh = 4,
    /// It may or may not have happened: only a call with a call id may be repeated.
    Unknown = 5,
}

impl RetryClass {
    /// The class of a number from the wire; `Unknown`, the most careful one, where it is none of ours.
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Never,
            1 => Self::Same,
            2 => Self::OtherReplica,
            3 => Self::FollowLeader,
            4 => Self::AfterRefresh,
            _ => Self::Unknown,
        }
    }
}

/// An error with a stable code, a retry class and a message for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// For the program.
    pub code: ErrorCode,
    /// For the program: what may help.
    pub retry: RetryClass,
    /// For the person: lower case, no full stop, what was attempted on what.
    pub message: String,
    /// Where the leader is, if `retry` is `FollowLeader` and it is known.
    pub leader: Option<String>,
    /// How long to wait before a retry, in milliseconds; a hint from an overloaded server.
    pub retry_after_ms: Option<u32>,
}

impl Error {
    /// An error with the code's own retry class.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, retry: code.default_retry(), message: message.into(), leader: None, retry_after_ms: None }
    }
    /// The same with another retry class.
    pub fn with_retry(mut self, retry: RetryClass) -> Self {
        self.retry = retry;
        self
    }
    /// An `InvalidArgument`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
    /// An `Internal`.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }
    /// The same with what was being done put before the message.
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_distinct_numbers_and_names() {
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_number(*code as u32), *code);
        }
        assert_eq!(ErrorCode::from_number(99_999), ErrorCode::Internal);
    }
}
