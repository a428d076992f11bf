//! The cluster in memory: the reference model that operations are tested against. It keeps the key-space manager's promises in the
//! simplest way there is; what it answers is what [`ozone_client::Client`] would.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use ozone_client::proto::common::v1 as common;
use ozone_client::proto::om::v1 as om;
use ozone_client::{CallContext, Written};
use ozone_common::checksum::crc32c;
use ozone_common::limits::{LIST_LIMIT_MAX, PART_LENGTH_MIN};
use ozone_common::{Error, ErrorCode};
use parking_lot::Mutex;

use super::backend::{Backend, ObjectReader, ObjectWriter};
use crate::body::{Algorithm, Hasher, md5};
use crate::response::Pieces;

/// Bytes that a reader gives at once.
const PIECE: usize = 1000;

#[derive(Clone, Default)]
pub(crate) struct Twin {
    pub state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub buckets: BTreeMap<String, Bucket>,
    /// Written, not yet committed.
    blocks: HashMap<u64, Bytes>,
    data: HashMap<u64, Bytes>,
    sequence: u64,
    pub now_ms: u64,
    /// Largest inline value of buckets made from now on.
    pub inline_max: u32,
    /// Readers fail behind this many bytes.
    pub fail_read_at: Option<u64>,
    /// The next commit fails so.
    pub fail_commit: Option<Error>,
    /// Calls so far, by name.
    pub calls: BTreeMap<&'static str, u32>,
}

pub(crate) struct Bucket {
    pub info: om::BucketInfo,
    pub keys: BTreeMap<Bytes, om::KeyInfo>,
    pub uploads: BTreeMap<(Bytes, String), Upload>,
    /// Uploads completed, with the generation they made.
    completed: BTreeMap<String, u64>,
}

pub(crate) struct Upload {
    meta: om::ObjectMeta,
    owner: String,
    initiated_ms: u64,
    pub parts: BTreeMap<u32, (om::PartInfo, Bytes)>,
}

fn no_key() -> Error {
    Error::new(ErrorCode::KeyNotFound, "no such key")
}

fn no_upload() -> Error {
    Error::new(ErrorCode::UploadNotFound, "no such upload")
}

impl State {
    fn call(&mut self, ctx: &CallContext, name: &'static str) {
        assert!(tokio::time::Instant::now() < ctx.deadline, "{name} has no time left, however slowly a body came");
        *self.calls.entry(name).or_default() += 1;
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn bucket(&mut self, address: Option<om::BucketAddress>) -> Result<&mut Bucket, Error> {
        let name = address.unwrap_or_default().bucket;
        self.buckets.get_mut(&name).ok_or_else(|| Error::new(ErrorCode::BucketNotFound, "no such bucket"))
    }

    fn take_blocks(&mut self, blocks: &[common::Block]) -> Bytes {
        let mut bytes = BytesMut::new();
        for block in blocks {
            bytes.extend_from_slice(&self.blocks.remove(&block.id).expect("a block is committed once"));
        }
        bytes.freeze()
    }
}

fn check(conditions: Option<&om::Conditions>, existing: Option<&om::KeyInfo>) -> Result<(), Error> {
    let Some(conditions) = conditions else { return Ok(()) };
    let by_tag = !conditions.if_match_md5.is_empty();
    let Some(key) = existing else {
        let needs_one = conditions.if_present || by_tag || conditions.if_generation != 0;
        return if needs_one { Err(no_key()) } else { Ok(()) };
    };
    let meta = key.meta.clone().unwrap_or_default();
    if conditions.if_absent {
        return Err(Error::new(ErrorCode::KeyAlreadyExists, "the key exists already"));
    }
    if by_tag && (meta.etag_md5 != conditions.if_match_md5 || meta.etag_parts != conditions.if_match_parts) {
        return Err(Error::new(ErrorCode::PreconditionFailed, "another etag"));
    }
    if conditions.if_generation != 0 && conditions.if_generation != key.generation {
        return Err(Error::new(ErrorCode::KeyChanged, "another generation"));
    }
    Ok(())
}

fn page_limit(limit: u32) -> usize {
    if limit == 0 { LIST_LIMIT_MAX as usize } else { limit.min(LIST_LIMIT_MAX) as usize }
}

/// The common prefix that a name falls under.
pub(crate) fn common_prefix(name: &[u8], prefix: &[u8], delimiter: &[u8]) -> Option<Bytes> {
    let rest = name.strip_prefix(prefix).filter(|_| !delimiter.is_empty())?;
    let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some(Bytes::copy_from_slice(&name[..prefix.len() + at + delimiter.len()]))
}

impl Backend for Twin {
    type Writer = TwinWriter;
    type Reader = TwinReader;

    async fn create_bucket(&self, ctx: &CallContext, request: om::CreateBucket) -> Result<om::BucketInfo, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "create_bucket");
        let address = request.address.unwrap_or_default();
        if state.buckets.contains_key(&address.bucket) {
            return Err(Error::new(ErrorCode::BucketAlreadyExists, "the bucket exists"));
        }
        let info = om::BucketInfo {
            id: state.next(),
            owner: ctx.user.as_deref().unwrap_or_default().to_owned(),
            replication: "RATIS/THREE".into(),
            durability: 1,
            created_ms: state.now_ms,
            inline_max: state.inline_max,
            address: Some(address.clone()),
            ..Default::default()
        };
        let bucket =
            Bucket { info: info.clone(), keys: BTreeMap::new(), uploads: BTreeMap::new(), completed: BTreeMap::new() };
        state.buckets.insert(address.bucket, bucket);
        Ok(info)
    }

    async fn info_bucket(&self, ctx: &CallContext, request: om::InfoBucket) -> Result<om::BucketInfo, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "info_bucket");
        state.bucket(request.address).map(|bucket| bucket.info.clone())
    }

    async fn list_buckets(&self, ctx: &CallContext, request: om::ListBuckets) -> Result<om::BucketList, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "list_buckets");
        if state.buckets.is_empty() {
            return Err(Error::new(ErrorCode::VolumeNotFound, "the volume comes with its first bucket"));
        }
        let mut all: Vec<om::BucketInfo> = state
            .buckets
            .range::<str, _>((std::ops::Bound::Excluded(request.start_after.as_str()), std::ops::Bound::Unbounded))
            .filter(|(name, _)| name.starts_with(&request.prefix))
            .map(|(_, bucket)| bucket.info.clone())
            .filter(|info| request.owner.is_empty() || info.owner == request.owner)
            .collect();
        let limit = page_limit(request.limit);
        let truncated = all.len() > limit;
        all.truncate(limit);
        Ok(om::BucketList { buckets: all, truncated })
    }

    async fn delete_bucket(&self, ctx: &CallContext, request: om::DeleteBucket) -> Result<om::Empty, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "delete_bucket");
        let bucket = state.bucket(request.address.clone())?;
        if !bucket.keys.is_empty() || !bucket.uploads.is_empty() {
            return Err(Error::new(ErrorCode::BucketNotEmpty, "the bucket still has keys"));
        }
        state.buckets.remove(&request.address.unwrap_or_default().bucket);
        Ok(om::Empty {})
    }

    async fn commit_key(&self, ctx: &CallContext, request: om::CommitKey) -> Result<om::KeyCommitted, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "commit_key");
        if let Some(error) = state.fail_commit.take() {
            return Err(error);
        }
        let (generation, now_ms) = (state.next(), state.now_ms);
        let bytes = if request.is_inline { request.inline.clone() } else { state.take_blocks(&request.blocks) };
        let bucket = state.bucket(request.bucket)?;
        if request.bucket_id != bucket.info.id {
            return Err(Error::new(ErrorCode::BucketChanged, "another bucket"));
        }
        check(request.conditions.as_ref(), bucket.keys.get(&request.key))?;
        if request.is_inline && bytes.len() > bucket.info.inline_max as usize {
            return Err(Error::new(ErrorCode::TooLarge, "inline bytes"));
        }
        assert_eq!(bytes.len() as u64, request.length);
        let info = om::KeyInfo {
            key: request.key.clone(),
            length: request.length,
            generation,
            created_ms: now_ms,
            modified_ms: now_ms,
            meta: request.meta,
            replication: bucket.info.replication.clone(),
            parts: Vec::new(),
            owner: ctx.user.as_deref().unwrap_or_default().to_owned(),
        };
        let replaced = bucket.keys.insert(request.key, info).is_some();
        state.data.insert(generation, bytes);
        Ok(om::KeyCommitted { generation, modified_ms: now_ms, replaced })
    }

    async fn lookup_key(&self, ctx: &CallContext, request: om::LookupKey) -> Result<om::KeyFound, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "lookup_key");
        let bucket = state.bucket(request.bucket)?;
        let info = bucket.keys.get(&request.key).cloned().ok_or_else(no_key)?;
        if request.generation != 0 && request.generation != info.generation {
            return Err(Error::new(ErrorCode::KeyChanged, "another generation"));
        }
        Ok(om::KeyFound { info: Some(info), ..Default::default() })
    }

    async fn list_keys(&self, ctx: &CallContext, request: om::ListKeys) -> Result<om::KeyList, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "list_keys");
        let bucket = state.bucket(request.bucket)?;
        let limit = page_limit(request.limit);
        let mut page = om::KeyList::default();
        let mut seen = BTreeSet::new();
        let after_common = common_prefix(&request.start_after, &request.prefix, &request.delimiter);
        for (name, info) in bucket
            .keys
            .range::<[u8], _>((std::ops::Bound::Excluded(request.start_after.as_ref()), std::ops::Bound::Unbounded))
        {
            if !name.starts_with(&request.prefix) {
                continue;
            }
            let common = common_prefix(name, &request.prefix, &request.delimiter);
            if common.as_ref().is_some_and(|common| Some(common) == after_common.as_ref() || seen.contains(common)) {
                continue;
            }
            if page.keys.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                break;
            }
            match common {
                Some(common) => {
                    page.last = common.clone();
                    seen.insert(common.clone());
                    page.common_prefixes.push(common);
                }
                None => {
                    page.last = name.clone();
                    page.keys.push(info.clone());
                }
            }
        }
        Ok(page)
    }

    async fn delete_key(&self, ctx: &CallContext, request: om::DeleteKey) -> Result<om::Empty, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "delete_key");
        let bucket = state.bucket(request.bucket)?;
        check(request.conditions.as_ref(), bucket.keys.get(&request.key))?;
        bucket.keys.remove(&request.key);
        Ok(om::Empty {})
    }

    async fn delete_keys(&self, ctx: &CallContext, request: om::DeleteKeys) -> Result<om::DeleteKeysReply, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "delete_keys");
        let bucket = state.bucket(request.bucket)?;
        let errors = request
            .keys
            .iter()
            .map(|key| match ozone_common::name::KeyName::new(key.clone()) {
                Ok(_) => {
                    bucket.keys.remove(key);
                    common::Error::default()
                }
                Err(error) => common::Error { code: error.code as u32, message: error.message, ..Default::default() },
            })
            .collect();
        Ok(om::DeleteKeysReply { errors })
    }

    async fn initiate_upload(
        &self,
        ctx: &CallContext,
        request: om::InitiateUpload,
    ) -> Result<om::UploadInitiated, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "initiate_upload");
        let (id, now_ms) = (format!("{:032x}", state.next()), state.now_ms);
        let upload = Upload {
            meta: request.meta.unwrap_or_default(),
            owner: ctx.user.as_deref().unwrap_or_default().to_owned(),
            initiated_ms: now_ms,
            parts: BTreeMap::new(),
        };
        state.bucket(request.bucket)?.uploads.insert((request.key, id.clone()), upload);
        Ok(om::UploadInitiated { upload: id })
    }

    async fn commit_part(&self, ctx: &CallContext, request: om::CommitPart) -> Result<om::PartCommitted, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "commit_part");
        let now_ms = state.now_ms;
        let bytes = state.take_blocks(&request.blocks);
        let bucket = state.bucket(request.bucket)?;
        let upload = bucket.uploads.get_mut(&(request.key, request.upload)).ok_or_else(no_upload)?;
        let asked = upload.meta.checksum.as_ref().map_or(0, |sum| sum.algorithm);
        if asked != 0 && request.checksum.as_ref().is_some_and(|sum| sum.algorithm != asked) {
            return Err(Error::invalid("another algorithm"));
        }
        let info = om::PartInfo {
            part: request.part,
            length: request.length,
            md5: request.md5,
            checksum: request.checksum,
            modified_ms: now_ms,
        };
        upload.parts.insert(request.part, (info, bytes));
        Ok(om::PartCommitted { modified_ms: now_ms })
    }

    async fn list_parts(&self, ctx: &CallContext, request: om::ListParts) -> Result<om::PartList, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "list_parts");
        let bucket = state.bucket(request.bucket)?;
        let upload = bucket.uploads.get(&(request.key, request.upload)).ok_or_else(no_upload)?;
        let mut parts: Vec<om::PartInfo> =
            upload.parts.range(request.after_part + 1..).map(|(_, (info, _))| info.clone()).collect();
        let limit = page_limit(request.limit);
        let truncated = parts.len() > limit;
        parts.truncate(limit);
        Ok(om::PartList {
            parts,
            truncated,
            meta: Some(upload.meta.clone()),
            owner: upload.owner.clone(),
            initiated_ms: upload.initiated_ms,
        })
    }

    async fn list_uploads(&self, ctx: &CallContext, request: om::ListUploads) -> Result<om::UploadList, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "list_uploads");
        let bucket = state.bucket(request.bucket)?;
        let limit = page_limit(request.limit);
        let mut page = om::UploadList::default();
        let mut seen = BTreeSet::new();
        let after_common = common_prefix(&request.key_marker, &request.prefix, &request.delimiter);
        for ((name, id), upload) in &bucket.uploads {
            let behind = match name.cmp(&request.key_marker) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal => !request.upload_marker.is_empty() && *id > request.upload_marker,
                std::cmp::Ordering::Less => false,
            };
            if !behind || !name.starts_with(&request.prefix) {
                continue;
            }
            let common = common_prefix(name, &request.prefix, &request.delimiter);
            if common.as_ref().is_some_and(|common| Some(common) == after_common.as_ref() || seen.contains(common)) {
                continue;
            }
            if page.uploads.len() + page.common_prefixes.len() == limit {
                page.truncated = true;
                break;
            }
            match common {
                Some(common) => {
                    seen.insert(common.clone());
                    page.common_prefixes.push(common);
                }
                None => page.uploads.push(om::UploadInfo {
                    key: name.clone(),
                    upload: id.clone(),
                    initiated_ms: upload.initiated_ms,
                    owner: upload.owner.clone(),
                    checksum: upload.meta.checksum.clone(),
                }),
            }
        }
        Ok(page)
    }

    async fn complete_upload(&self, ctx: &CallContext, request: om::CompleteUpload) -> Result<om::KeyCommitted, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "complete_upload");
        let (generation, now_ms) = (state.next(), state.now_ms);
        let bucket = state.bucket(request.bucket)?;
        let id = (request.key.clone(), request.upload.clone());
        let Some(upload) = bucket.uploads.get(&id) else {
            return match (bucket.completed.get(&request.upload), bucket.keys.get(&request.key)) {
                (Some(made), Some(key)) if *made == key.generation => {
                    Ok(om::KeyCommitted { generation: *made, modified_ms: key.modified_ms, replaced: false })
                }
                _ => Err(no_upload()),
            };
        };
        check(request.conditions.as_ref(), bucket.keys.get(&request.key))?;
        if request.parts.windows(2).any(|pair| pair[0].part >= pair[1].part) {
            return Err(Error::new(ErrorCode::InvalidPartOrder, "not in order"));
        }
        let mut parts = Vec::new();
        let mut bytes = BytesMut::new();
        for (at, named) in request.parts.iter().enumerate() {
            let bad = || Error::new(ErrorCode::InvalidPart, "a part is not as named");
            let (info, data) = upload.parts.get(&named.part).ok_or_else(bad)?;
            let sum = named.checksum.as_ref().filter(|sum| sum.algorithm != 0);
            let same = |sum: &om::Checksum| {
                info.checksum.as_ref().is_some_and(|ours| (ours.algorithm, &ours.value) == (sum.algorithm, &sum.value))
            };
            if info.md5 != named.md5 || !sum.is_none_or(same) {
                return Err(bad());
            }
            if at + 1 < request.parts.len() && info.length < PART_LENGTH_MIN {
                return Err(Error::new(ErrorCode::EntityTooSmall, "a part is too small"));
            }
            parts.push(info.clone());
            bytes.extend_from_slice(data);
        }
        if request.expected_length != 0 && request.expected_length != bytes.len() as u64 {
            return Err(Error::invalid("another length"));
        }
        let kind = upload.meta.checksum.clone().or_else(|| request.checksum.clone());
        let computed = kind.filter(|kind| kind.algorithm != 0).map(|kind| whole(&kind, &parts, &bytes));
        if let Some(expected) = request.checksum.as_ref().filter(|sum| sum.algorithm != 0)
            && computed.as_ref().is_none_or(|sum| (sum.algorithm, &sum.value) != (expected.algorithm, &expected.value))
        {
            return Err(Error::new(ErrorCode::ChecksumMismatch, "another checksum"));
        }
        let joined: Vec<u8> = parts.iter().flat_map(|part| part.md5.to_vec()).collect();
        let info = om::KeyInfo {
            key: request.key.clone(),
            length: bytes.len() as u64,
            generation,
            created_ms: now_ms,
            modified_ms: now_ms,
            meta: Some(om::ObjectMeta {
                etag_md5: md5(&joined).to_vec().into(),
                etag_parts: parts.len() as u32,
                checksum: computed,
                ..upload.meta.clone()
            }),
            replication: bucket.info.replication.clone(),
            parts,
            owner: upload.owner.clone(),
        };
        bucket.uploads.remove(&id);
        bucket.completed.insert(request.upload, generation);
        let replaced = bucket.keys.insert(request.key, info).is_some();
        state.data.insert(generation, bytes.freeze());
        Ok(om::KeyCommitted { generation, modified_ms: now_ms, replaced })
    }

    async fn abort_upload(&self, ctx: &CallContext, request: om::AbortUpload) -> Result<om::Empty, Error> {
        let mut state = self.state.lock();
        state.call(ctx, "abort_upload");
        let bucket = state.bucket(request.bucket)?;
        bucket.uploads.remove(&(request.key, request.upload)).map(|_| om::Empty {}).ok_or_else(no_upload)
    }

    fn writer(&self, ctx: &CallContext, bucket: &om::BucketInfo, _: Option<u64>) -> Result<TwinWriter, Error> {
        self.state.lock().call(ctx, "writer");
        Ok(TwinWriter { twin: self.clone(), bytes: BytesMut::new(), inline_max: bucket.inline_max as usize })
    }

    fn reader(
        &self,
        ctx: &CallContext,
        _: &om::BucketAddress,
        found: &om::KeyFound,
        range: Range<u64>,
    ) -> Result<TwinReader, Error> {
        let info = found.info.as_ref().expect("a key");
        assert!(range.start <= range.end && range.end <= info.length, "{range:?} of {}", info.length);
        let mut state = self.state.lock();
        state.call(ctx, "reader");
        let bytes = state.data[&info.generation].slice(range.start as usize..range.end as usize);
        Ok(TwinReader { bytes, given: 0, fail_at: state.fail_read_at })
    }
}

/// The checksum of an object of parts, from its bytes.
fn whole(kind: &om::Checksum, parts: &[om::PartInfo], bytes: &[u8]) -> om::Checksum {
    let algorithm = Algorithm::from_number(kind.algorithm).expect("a known algorithm");
    let mut hasher = Hasher::new(algorithm);
    if !kind.composite {
        hasher.update(bytes);
        return hasher.finish().to_om();
    }
    for part in parts {
        hasher.update(&part.checksum.as_ref().expect("a part's checksum").value);
    }
    om::Checksum { composite: true, parts: parts.len() as u32, ..hasher.finish().to_om() }
}

pub(crate) struct TwinWriter {
    twin: Twin,
    bytes: BytesMut,
    inline_max: usize,
}

impl ObjectWriter for TwinWriter {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }

    async fn finish(self, ctx: &CallContext) -> Result<Written, Error> {
        assert!(tokio::time::Instant::now() < ctx.deadline, "bytes that came slowly still have time to be written");
        let bytes = self.bytes.freeze();
        let mut written = Written {
            length: bytes.len() as u64,
            blocks: Vec::new(),
            grants: Vec::new(),
            inline: None,
            crc32c: crc32c(&bytes),
        };
        if bytes.is_empty() {
            return Ok(written);
        }
        if bytes.len() <= self.inline_max {
            written.inline = Some(bytes);
            return Ok(written);
        }
        let mut state = self.twin.state.lock();
        let id = state.next();
        written.blocks.push(common::Block { id, epoch: 1, length: written.length, crc32c: written.crc32c });
        state.blocks.insert(id, bytes);
        Ok(written)
    }
}

pub(crate) struct TwinReader {
    bytes: Bytes,
    given: u64,
    fail_at: Option<u64>,
}

impl TwinReader {
    fn give(&mut self) -> Result<Option<Bytes>, Error> {
        if self.fail_at.is_some_and(|at| self.given >= at) {
            return Err(Error::new(ErrorCode::Corrupt, "no replica is readable"));
        }
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let piece = self.bytes.split_to(self.bytes.len().min(PIECE));
        self.given += piece.len() as u64;
        Ok(Some(piece))
    }
}

impl ObjectReader for TwinReader {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.give()
    }
}

impl Pieces for TwinReader {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        Poll::Ready(self.give())
    }
    fn remaining(&self) -> u64 {
        self.bytes.len() as u64
    }
}
