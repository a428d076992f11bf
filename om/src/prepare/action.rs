//! Operations and what they are about, as decisions, the audit trail and metrics name them.

use std::fmt;

use bytes::Bytes;
use ozone_proto::om::v1::om_request::Op;

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $changes:literal;)*) => {
        /// An operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Action {
            $($(#[$doc])* $name,)*
        }
        impl Action {
            /// Every action, in order of its number.
            pub const ALL: &'static [Action] = &[$(Action::$name),*];
            /// As the audit trail names it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
            /// Whether it changes the namespace: then it has a line in the audit trail.
            pub const fn changes(self) -> bool {
                match self { $(Self::$name => $changes,)* }
            }
        }
    };
}

actions! {
    /// Make a volume.
    CreateVolume = "CREATE_VOLUME", true;
    /// Describe a volume.
    InfoVolume = "INFO_VOLUME", false;
    /// List volumes.
    ListVolumes = "LIST_VOLUMES", false;
    /// Remove a volume.
    DeleteVolume = "DELETE_VOLUME", true;
    /// Make a bucket.
    CreateBucket = "CREATE_BUCKET", true;
    /// Describe a bucket.
    InfoBucket = "INFO_BUCKET", false;
    /// List buckets.
    ListBuckets = "LIST_BUCKETS", false;
    /// Remove a bucket.
    DeleteBucket = "DELETE_BUCKET", true;
    /// Take blocks to write.
    AcquireGrant = "ACQUIRE_GRANT", false;
    /// Keep them longer.
    RenewGrant = "RENEW_GRANT", false;
    /// Give them back.
    ReleaseGrant = "RELEASE_GRANT", false;
    /// Report replicas lost while writing.
    ReportFailedWrite = "REPORT_FAILED_WRITE", true;
    /// Make or replace a key.
    CommitKey = "COMMIT_KEY", true;
    /// Find a key.
    LookupKey = "LOOKUP_KEY", false;
    /// List keys.
    ListKeys = "LIST_KEYS", false;
    /// Remove a key.
    DeleteKey = "DELETE_KEY", true;
    /// Remove keys.
    DeleteKeys = "DELETE_KEYS", true;
    /// Begin a multipart upload.
    InitiateUpload = "INITIATE_MULTIPART_UPLOAD", true;
    /// Make or replace a part.
    CommitPart = "COMMIT_MULTIPART_UPLOAD_PARTKEY", true;
    /// List parts.
    ListParts = "LIST_MULTIPART_UPLOAD_PARTS", false;
    /// List uploads.
    ListUploads = "LIST_MULTIPART_UPLOADS", false;
    /// Join parts.
    CompleteUpload = "COMPLETE_MULTIPART_UPLOAD", true;
    /// Give an upload up.
    AbortUpload = "ABORT_MULTIPART_UPLOAD", true;
    /// Get or make a secret.
    GetSecret = "GET_S3_SECRET", true;
    /// Remove a secret.
    RevokeSecret = "REVOKE_S3_SECRET", true;
    /// Find the secret of an access key, for verifying signatures.
    LookupSecret = "LOOKUP_S3_SECRET", false;
    /// How the service stands.
    Status = "STATUS", false;
}

/// What an operation is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// The service as a whole.
    Cluster,
    /// A volume.
    Volume(String),
    /// A bucket.
    Bucket(String, String),
    /// A key.
    Key(String, String, Bytes),
    /// A block grant.
    Grant(u64),
    /// A user's secret.
    Secret(String),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("/"),
            Self::Volume(volume) => write!(f, "/{volume}"),
            Self::Bucket(volume, bucket) => write!(f, "/{volume}/{bucket}"),
            Self::Key(volume, bucket, key) => write!(f, "/{volume}/{bucket}/{}", String::from_utf8_lossy(key)),
            Self::Grant(grant) => write!(f, "grant {grant}"),
            Self::Secret(user) => write!(f, "secret {user}"),
        }
    }
}

/// What a request asks for, and about what.
pub fn of(op: &Op) -> (Action, Resource) {
    let bucket = |address: &Option<ozone_proto::om::v1::BucketAddress>| {
        address.as_ref().map_or(Resource::Cluster, |at| Resource::Bucket(at.volume.clone(), at.bucket.clone()))
    };
    let key = |address: &Option<ozone_proto::om::v1::BucketAddress>, key: &Bytes| {
        address
            .as_ref()
            .map_or(Resource::Cluster, |at| Resource::Key(at.volume.clone(), at.bucket.clone(), key.clone()))
    };
    match op {
        Op::CreateVolume(r) => (Action::CreateVolume, Resource::Volume(r.volume.clone())),
        Op::InfoVolume(r) => (Action::InfoVolume, Resource::Volume(r.volume.clone())),
        Op::ListVolumes(_) => (Action::ListVolumes, Resource::Cluster),
        Op::DeleteVolume(r) => (Action::DeleteVolume, Resource::Volume(r.volume.clone())),
        Op::CreateBucket(r) => (Action::CreateBucket, bucket(&r.address)),
        Op::InfoBucket(r) => (Action::InfoBucket, bucket(&r.address)),
        Op::ListBuckets(r) => (Action::ListBuckets, Resource::Volume(r.volume.clone())),
        Op::DeleteBucket(r) => (Action::DeleteBucket, bucket(&r.address)),
        Op::AcquireGrant(_) => (Action::AcquireGrant, Resource::Cluster),
        Op::RenewGrant(r) => (Action::RenewGrant, Resource::Grant(r.grant)),
        Op::ReleaseGrant(r) => (Action::ReleaseGrant, Resource::Grant(r.grant)),
        Op::ReportFailedWrite(r) => (Action::ReportFailedWrite, Resource::Grant(r.grant)),
        Op::CommitKey(r) => (Action::CommitKey, key(&r.bucket, &r.key)),
        Op::LookupKey(r) => (Action::LookupKey, key(&r.bucket, &r.key)),
        Op::ListKeys(r) => (Action::ListKeys, bucket(&r.bucket)),
        Op::DeleteKey(r) => (Action::DeleteKey, key(&r.bucket, &r.key)),
        Op::DeleteKeys(r) => (Action::DeleteKeys, bucket(&r.bucket)),
        Op::InitiateUpload(r) => (Action::InitiateUpload, key(&r.bucket, &r.key)),
        Op::CommitPart(r) => (Action::CommitPart, key(&r.bucket, &r.key)),
        Op::ListParts(r) => (Action::ListParts, key(&r.bucket, &r.key)),
        Op::ListUploads(r) => (Action::ListUploads, bucket(&r.bucket)),
        Op::CompleteUpload(r) => (Action::CompleteUpload, key(&r.bucket, &r.key)),
        Op::AbortUpload(r) => (Action::AbortUpload, key(&r.bucket, &r.key)),
        Op::GetSecret(r) => (Action::GetSecret, Resource::Secret(r.user.clone())),
        Op::RevokeSecret(r) => (Action::RevokeSecret, Resource::Secret(r.user.clone())),
        Op::LookupSecret(_) => (Action::LookupSecret, Resource::Cluster),
        Op::Status(_) => (Action::Status, Resource::Cluster),
    }
}
