//! Settled requests: names parsed, identity known, time, ids and random bytes drawn.

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::id::{BucketId, ClientId, ContainerId, GrantId};
use ozone_common::name::{BucketName, KeyName, VolumeName};
use ozone_common::replication::Replication;
use ozone_proto::common::v1::Block;
use ozone_proto::om::v1::CompletedPart;

use crate::tables::grant::GrantRange;
use crate::tables::key::{ChecksumRow, MetaRow};
use crate::tables::upload::UploadId;

/// A bucket by its names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// Its volume.
    pub volume: VolumeName,
    /// Its name.
    pub bucket: BucketName,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.volume, self.bucket)
    }
}

/// Whether small values go into the commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InlinePolicy {
    /// While the group has `min_replicas` members: one copy is never called three.
    #[default]
    Auto,
    /// The bucket asks for it.
    Always,
    /// Never.
    Never,
}

/// A change.
#[derive(Clone, Debug)]
pub enum Command {
    /// Makes a volume.
    CreateVolume {
        /// Its name.
        volume: VolumeName,
        /// Whose it is.
        owner: String,
    },
    /// Removes an empty volume.
    DeleteVolume {
        /// Its name.
        volume: VolumeName,
    },
    /// Makes a bucket.
    CreateBucket(CreateBucket),
    /// Removes an empty bucket.
    DeleteBucket {
        /// Which.
        address: Address,
    },
    /// Makes a grant.
    AcquireGrant(AcquireGrant),
    /// Lets a grant live on.
    RenewGrant {
        /// Who asks.
        holder: ClientId,
        /// Which.
        grant: GrantId,
        /// From now on.
        life_ms: u64,
    },
    /// Ends a grant; ids not committed are freed.
    ReleaseGrant {
        /// Who asks.
        holder: ClientId,
        /// Which.
        grant: GrantId,
    },
    /// Takes note of a container's higher epoch.
    RecordEpoch {
        /// Who reported.
        holder: ClientId,
        /// Its grant.
        grant: GrantId,
        /// The container that lost replicas.
        container: ContainerId,
        /// Its epoch, as the SCM logged it.
        epoch: u32,
    },
    /// Ends grants whose time is over.
    ExpireGrants {
        /// Candidates; those renewed meanwhile stay.
        grants: Vec<GrantId>,
    },
    /// Makes or replaces a key.
    CommitKey(CommitKey),
    /// Removes a key.
    DeleteKey {
        /// Its bucket.
        address: Address,
        /// The key.
        key: KeyName,
        /// Under which conditions.
        conditions: Conditions,
        /// Whether its absence is an error.
        must_exist: bool,
    },
    /// Removes keys.
    DeleteKeys {
        /// Their bucket.
        address: Address,
        /// The keys, or what is wrong with them.
        keys: Vec<Result<KeyName, Error>>,
    },
    /// Begins a multipart upload.
    InitiateUpload(InitiateUpload),
    /// Makes or replaces a part.
    CommitPart(CommitPart),
    /// Joins parts to a key.
    CompleteUpload(CompleteUpload),
    /// Ends an upload; its parts are freed.
    AbortUpload {
        /// Its bucket.
        address: Address,
        /// Its key.
        key: KeyName,
        /// Which.
        upload: UploadId,
    },
    /// Answers a user's secret.
    GetSecret {
        /// Whose.
        user: String,
        /// Make one where there is none.
        create: bool,
        /// What it would be.
        fresh: String,
    },
    /// Removes a user's secret.
    RevokeSecret {
        /// Whose.
        user: String,
    },
    /// The SCM has the blocks of these rows of `deleted`.
    Purged {
        /// The first sequence.
        from: u64,
        /// The last.
        through: u64,
    },
    /// Moves the blocks of parts of the first upload in `deleted_parts` to `deleted`.
    ReclaimParts {
        /// So many parts at most.
        limit: usize,
    },
    /// Writes the layout version into a new store; refuses a store of another.
    Format,
}

/// See [`Command::CreateBucket`].
#[derive(Clone, Debug)]
pub struct CreateBucket {
    /// Its names.
    pub address: Address,
    /// Whose it is.
    pub owner: String,
    /// Copies of its blocks.
    pub replication: Replication,
    /// Whether writes may be answered from page caches.
    pub memory_durability: bool,
    /// About inline values.
    pub inline: InlinePolicy,
    /// Make the volume too where it is absent.
    pub create_volume: bool,
    /// Members of the group now.
    pub members: u32,
}

/// See [`Command::AcquireGrant`].
#[derive(Clone, Debug)]
pub struct AcquireGrant {
    /// The writer.
    pub holder: ClientId,
    /// Copies.
    pub replication: Replication,
    /// Bytes per block.
    pub max_block_length: u64,
    /// Blocks that no grant had before.
    pub ranges: Vec<GrantRange>,
    /// From now on.
    pub life_ms: u64,
    /// Fewest replicas with which a block may be committed.
    pub min_replicas: u32,
}

/// What must hold of the key that is there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Conditions {
    /// There is none.
    pub if_absent: bool,
    /// There is one.
    pub if_present: bool,
    /// Its etag is this: MD5 and number of parts.
    pub if_match: Option<(Bytes, u32)>,
    /// Its generation is this; 0 = any.
    pub if_generation: u64,
}

/// What belongs to an object besides its bytes, as rows hold it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// MD5; empty where there is none.
    pub etag_md5: Bytes,
    /// N of the suffix.
    pub etag_parts: u32,
    /// As the client named it.
    pub checksum: Option<ChecksumRow>,
    /// A known content type.
    pub content_type: u32,
    /// Headers and user metadata.
    pub meta: Option<MetaRow>,
}

/// Where an object's bytes are.
#[derive(Clone, PartialEq, Debug)]
pub enum Data {
    /// In blocks of the writer's grants.
    Blocks {
        /// In order.
        blocks: Vec<Block>,
        /// Where they come from.
        grants: Vec<GrantId>,
    },
    /// Here.
    Inline(Bytes),
}

/// See [`Command::CommitKey`].
#[derive(Clone, Debug)]
pub struct CommitKey {
    /// The writer: holder of the grants.
    pub holder: ClientId,
    /// Whose key it is.
    pub owner: String,
    /// The bucket.
    pub address: Address,
    /// Id of the bucket that the bytes were written for; `None` = whichever has the name.
    pub bucket: Option<BucketId>,
    /// The key.
    pub key: KeyName,
    /// Bytes.
    pub length: u64,
    /// What else.
    pub facts: Facts,
    /// The bytes.
    pub data: Data,
    /// Judged now.
    pub conditions: Conditions,
    /// Members of the group now.
    pub members: u32,
}

/// See [`Command::InitiateUpload`].
#[derive(Clone, Debug)]
pub struct InitiateUpload {
    /// The bucket.
    pub address: Address,
    /// The key to be.
    pub key: KeyName,
    /// Whose.
    pub owner: String,
    /// What else; no etag.
    pub facts: Facts,
    /// So that an upload id cannot be guessed.
    pub random: u64,
}

/// See [`Command::CommitPart`].
#[derive(Clone, Debug)]
pub struct CommitPart {
    /// The writer.
    pub holder: ClientId,
    /// The bucket.
    pub address: Address,
    /// The key.
    pub key: KeyName,
    /// The upload.
    pub upload: UploadId,
    /// 1..=10,000.
    pub part: u16,
    /// Bytes.
    pub length: u64,
    /// 16 bytes, or none.
    pub md5: Bytes,
    /// As the client named it.
    pub checksum: Option<ChecksumRow>,
    /// In order.
    pub blocks: Vec<Block>,
    /// Where they come from.
    pub grants: Vec<GrantId>,
}

/// See [`Command::CompleteUpload`].
#[derive(Clone, Debug)]
pub struct CompleteUpload {
    /// The bucket.
    pub address: Address,
    /// The key.
    pub key: KeyName,
    /// The upload.
    pub upload: UploadId,
    /// In order.
    pub parts: Vec<CompletedPart>,
    /// Of the whole, as the client expects it.
    pub checksum: Option<ChecksumRow>,
    /// 0 = not said.
    pub expected_length: u64,
    /// Judged now.
    pub conditions: Conditions,
}
