//! Random sequences of every command against a plain model of the namespace.
//!
//! The model keeps maps and sets and knows nothing of rows. After each command the outcomes are compared, at the end the whole contents and
//! every named invariant. Some effects stay in the overlay for a while, as in the real group.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ozone_common::env::mem_disk::MemDisk;
use ozone_common::env::{Rng, SeededRng};
use ozone_common::id::{BlockId, ClientId, ContainerId, GrantId};
use ozone_common::limits::PART_LENGTH_MIN;
use ozone_common::name::{BucketName, KeyName, VolumeName};
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode};
use ozone_consensus::executor::Stamp;
use ozone_consensus::overlay::{Overlay, View};
use ozone_kvstore::mem::MemStore;
use ozone_kvstore::{Batch, Read, Store};
use ozone_proto::common::v1::Block;
use ozone_proto::om::v1::{self as om, OmResponse, om_response::Op as Reply};
use prost::Message;
use std::sync::Arc;

use super::command::*;
use super::{Settings, execute, invariants, list, read};
use crate::tables::TABLES;
use crate::tables::deleted;
use crate::tables::grant::GrantRange;
use crate::tables::upload::UploadId;

const SETTINGS: Settings = Settings { read_token_life_ms: 60_000, inline_max: 4096 };
const BLOCK_MAX: u64 = 8 << 20;
const LIFE_MS: u64 = 600_000;
const KEYS: [&[u8]; 7] = [b"a", b"a/", b"a//b", b"a/../b", b"\xff", b"\0", b"a\0\xff"];

#[derive(Clone, Debug, PartialEq)]
struct Object {
    generation: u64,
    length: u64,
    md5: Bytes,
    blocks: Vec<u64>,
    inline: Option<Bytes>,
    upload: Option<UploadId>,
}

#[derive(Clone, Debug, Default)]
struct Upload {
    key: Vec<u8>,
    parts: BTreeMap<u16, (u64, Bytes, Vec<u64>)>,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    always_inline: bool,
    keys: BTreeMap<Vec<u8>, Object>,
    uploads: BTreeMap<UploadId, Upload>,
}

#[derive(Clone, Debug)]
struct Grant {
    holder: usize,
    expires_ms: u64,
    container: u64,
    first: u32,
    count: u32,
    epoch_now: u32,
    used: BTreeSet<u64>,
}

#[derive(Default)]
struct Model {
    volumes: BTreeSet<String>,
    buckets: BTreeMap<(String, String), Bucket>,
    grants: BTreeMap<u64, Grant>,
    secrets: BTreeMap<String, String>,
    /// Every block that was ever granted, and those handed to the SCM.
    granted: BTreeSet<u64>,
    purged: BTreeSet<u64>,
    /// Ids that were given out, live or not, for commands to pick from.
    grant_ids: Vec<u64>,
    upload_ids: Vec<(String, String, Vec<u8>, UploadId)>,
}

pub(super) struct World {
    pub(super) store: MemStore,
    pub(super) overlay: Overlay,
    waiting: Vec<(u64, Batch)>,
    sequence: u64,
    now_ms: u64,
    next_container: u64,
    model: Model,
    rng: SeededRng,
    /// How often each kind of command took effect, and was refused.
    seen: RefCell<BTreeMap<(String, bool), u32>>,
}

pub(super) fn client(at: usize) -> ClientId {
    ClientId::from_bytes([at as u8 + 1; 16])
}

fn block_id(container: u64, local: u32) -> u64 {
    ContainerId::new(container).unwrap().block(local).unwrap().get()
}

pub(super) type Outcome = Result<Reply, ErrorCode>;

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            store: MemStore::new(Arc::new(MemDisk::new()), TABLES),
            overlay: Overlay::default(),
            waiting: Vec::new(),
            sequence: 0,
            now_ms: 1_000_000,
            next_container: 1,
            model: Model::default(),
            rng: SeededRng::new(seed),
            seen: RefCell::default(),
        }
    }

    fn pick(&self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }
    fn chance(&self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    pub(super) fn run(&mut self, command: Command) -> Outcome {
        self.sequence += 1;
        let stamp = Stamp { now_ms: self.now_ms, term: 1, sequence: self.sequence };
        let view = View::new(&self.store, &self.overlay);
        let effects = execute(&SETTINGS, &view, stamp, command).unwrap();
        if effects.reply.is_err() {
            assert!(effects.rows.is_empty(), "a refusal changes nothing");
        }
        self.overlay.add(self.sequence, &effects.rows);
        self.waiting.push((self.sequence, effects.rows));
        let keep = self.pick(4);
        self.apply(keep);
        match effects.reply {
            Ok(bytes) => Ok(OmResponse::decode(bytes).unwrap().op.unwrap()),
            Err(error) => Err(error.code),
        }
    }

    /// Applies what waits but for the last `keep`.
    fn apply(&mut self, keep: usize) {
        let count = self.waiting.len().saturating_sub(keep);
        for (number, batch) in self.waiting.drain(..count) {
            self.store.write(&batch).unwrap();
            self.overlay.applied(number, &batch);
        }
    }

    fn any_address(&self) -> (String, String) {
        (format!("vol{}", self.pick(2)), format!("buc{}", self.pick(2)))
    }
    fn any_key(&self) -> Vec<u8> {
        KEYS[self.pick(KEYS.len())].to_vec()
    }
    fn any_conditions(&self) -> Conditions {
        match self.pick(8) {
            0 => Conditions { if_absent: true, ..Default::default() },
            1 => Conditions { if_present: true, ..Default::default() },
            2 => Conditions { if_match: Some((vec![self.pick(2) as u8; 16].into(), 0)), ..Default::default() },
            3 => Conditions { if_generation: self.rng.below(self.sequence + 1), ..Default::default() },
            _ => Conditions::default(),
        }
    }

    fn missing(&self, at: &(String, String)) -> Option<ErrorCode> {
        match (self.model.volumes.contains(&at.0), self.model.buckets.contains_key(at)) {
            (false, _) => Some(ErrorCode::VolumeNotFound),
            (true, false) => Some(ErrorCode::BucketNotFound),
            _ => None,
        }
    }

    fn judge(conditions: &Conditions, existing: Option<&Object>) -> Option<ErrorCode> {
        match existing {
            None if conditions.if_present || conditions.if_match.is_some() || conditions.if_generation != 0 => {
                Some(ErrorCode::KeyNotFound)
            }
            None => None,
            Some(_) if conditions.if_absent => Some(ErrorCode::KeyAlreadyExists),
            Some(object) => {
                if conditions.if_match.as_ref().is_some_and(|(md5, _)| *md5 != object.md5 || object.upload.is_some()) {
                    Some(ErrorCode::PreconditionFailed)
                } else if conditions.if_generation != 0 && conditions.if_generation != object.generation {
                    Some(ErrorCode::KeyChanged)
                } else {
                    None
                }
            }
        }
    }

    /// Some blocks of a grant, mostly good ones, and what is wrong with them.
    fn any_blocks(&mut self, writer: usize, lengths: &[u64]) -> (Vec<Block>, Vec<GrantId>, Option<ErrorCode>) {
        if lengths.is_empty() {
            return (Vec::new(), Vec::new(), None);
        }
        let Some(id) = self.model.grant_ids.get(self.pick(self.model.grant_ids.len().max(1))).copied() else {
            let block = Block { id: block_id(1, 0), epoch: 1, length: lengths[0], crc32c: 0 };
            return (vec![block; lengths.len()], vec![GrantId(77)], Some(ErrorCode::GrantExpired));
        };
        let fault = self.pick(12);
        let grant = self.model.grants.get(&id).cloned();
        let Some(grant) = grant.filter(|grant| grant.holder == writer) else {
            let block = Block { id: block_id(1, 0), epoch: 1, length: lengths[0], crc32c: 0 };
            return (vec![block; lengths.len()], vec![GrantId(id)], Some(ErrorCode::GrantExpired));
        };
        let free: Vec<u64> = (0..grant.count)
            .map(|at| block_id(grant.container, grant.first + at))
            .filter(|block| !grant.used.contains(block))
            .take(lengths.len())
            .collect();
        if free.len() < lengths.len() {
            let block = Block {
                id: block_id(grant.container, grant.first + grant.count),
                epoch: 1,
                length: lengths[0],
                crc32c: 0,
            };
            return (vec![block; lengths.len()], vec![GrantId(id)], Some(ErrorCode::InvalidBlock));
        }
        let mut blocks: Vec<Block> = free
            .iter()
            .zip(lengths)
            .map(|(id, length)| Block {
                id: *id,
                epoch: 1 + self.pick(grant.epoch_now as usize) as u32,
                length: *length,
                crc32c: 7,
            })
            .collect();
        let bad = Some(ErrorCode::InvalidBlock);
        let wrong = match fault {
            0 if !grant.used.is_empty() => {
                blocks[0].id = *grant.used.first().unwrap();
                bad
            }
            1 => {
                blocks[0].epoch = grant.epoch_now + 1;
                bad
            }
            2 => {
                blocks[0].epoch = 0;
                bad
            }
            3 if blocks.len() > 1 => {
                blocks[1].id = blocks[0].id;
                bad
            }
            4 => {
                blocks[0].id = block_id(grant.container, grant.first + grant.count);
                bad
            }
            _ => None,
        };
        if wrong.is_none() {
            let grant = self.model.grants.get_mut(&id).unwrap();
            grant.used.extend(blocks.iter().map(|block| block.id));
        }
        (blocks, vec![GrantId(id)], wrong)
    }

    /// Takes marks of a commit back that was refused for another reason.
    fn unmark(&mut self, blocks: &[Block], wrong: Option<ErrorCode>) {
        if wrong.is_none() {
            for grant in self.model.grants.values_mut() {
                grant.used.retain(|id| blocks.iter().all(|block| block.id != *id));
            }
        }
    }

    fn step(&mut self) {
        self.now_ms += self.rng.below(1000);
        match self.pick(24) {
            0 => self.create_volume(),
            1 => self.delete_volume(),
            2 | 3 => self.create_bucket(),
            4 => self.delete_bucket(),
            5 | 6 => self.acquire(),
            7 => self.renew_or_raise(),
            8 => self.end_grant(),
            9..=11 => self.commit_blocks(),
            12 | 13 => self.commit_inline(),
            14 => self.delete(),
            15 => self.delete_many(),
            16 => self.initiate(),
            17..=19 => self.commit_part(),
            20 => self.complete(),
            21 => self.abort(),
            22 => self.purge(),
            _ => self.secret(),
        }
    }

    fn expect(&self, what: &str, outcome: &Outcome, want: Option<ErrorCode>) -> bool {
        *self.seen.borrow_mut().entry((what.to_owned(), want.is_none())).or_default() += 1;
        match want {
            None => assert!(outcome.is_ok(), "{what}: {outcome:?}"),
            Some(code) => assert_eq!(outcome.as_ref().err(), Some(&code), "{what}"),
        }
        want.is_none()
    }

    fn create_volume(&mut self) {
        let name = self.any_address().0;
        let want = self.model.volumes.contains(&name).then_some(ErrorCode::VolumeAlreadyExists);
        let outcome = self.run(Command::CreateVolume { volume: VolumeName::new(&*name).unwrap(), owner: "o".into() });
        if self.expect("create volume", &outcome, want) {
            self.model.volumes.insert(name);
        }
    }

    fn delete_volume(&mut self) {
        let name = self.any_address().0;
        let want = if !self.model.volumes.contains(&name) {
            Some(ErrorCode::VolumeNotFound)
        } else {
            self.model.buckets.keys().any(|(volume, _)| *volume == name).then_some(ErrorCode::VolumeNotEmpty)
        };
        let outcome = self.run(Command::DeleteVolume { volume: VolumeName::new(&*name).unwrap() });
        if self.expect("delete volume", &outcome, want) {
            self.model.volumes.remove(&name);
        }
    }

    fn create_bucket(&mut self) {
        let at = self.any_address();
        let (create_volume, always_inline) = (self.chance(2), self.chance(2));
        let want = match self.missing(&at) {
            Some(ErrorCode::VolumeNotFound) if !create_volume => Some(ErrorCode::VolumeNotFound),
            Some(_) => None,
            None => Some(ErrorCode::BucketAlreadyExists),
        };
        let outcome = self.run(Command::CreateBucket(CreateBucket {
            address: address(&at),
            owner: "o".into(),
            replication: Replication::Three,
            memory_durability: false,
            inline: if always_inline { InlinePolicy::Always } else { InlinePolicy::Auto },
            create_volume,
            members: 1,
        }));
        if self.expect("create bucket", &outcome, want) {
            self.model.volumes.insert(at.0.clone());
            self.model.buckets.insert(at, Bucket { always_inline, ..Bucket::default() });
        }
    }

    fn delete_bucket(&mut self) {
        let at = self.any_address();
        let want = self.missing(&at).or_else(|| {
            let bucket = &self.model.buckets[&at];
            (!bucket.keys.is_empty() || !bucket.uploads.is_empty()).then_some(ErrorCode::BucketNotEmpty)
        });
        let outcome = self.run(Command::DeleteBucket { address: address(&at) });
        if self.expect("delete bucket", &outcome, want) {
            self.model.buckets.remove(&at);
        }
    }

    fn acquire(&mut self) {
        let holder = self.pick(2);
        let (container, first, count) = (self.next_container, self.pick(5) as u32, 1 + self.pick(130) as u32);
        self.next_container += 1;
        let outcome = self.run(Command::AcquireGrant(AcquireGrant {
            holder: client(holder),
            replication: Replication::Three,
            max_block_length: BLOCK_MAX,
            ranges: vec![GrantRange { container, first_local: first, count, epoch: 1, epoch_raised: 0 }],
            life_ms: LIFE_MS,
            min_replicas: 2,
        }));
        let Ok(Reply::Grant(grant)) = outcome else { panic!("{outcome:?}") };
        assert_eq!((grant.min_replicas, grant.ranges.len()), (2, 1));
        self.model.grant_ids.push(grant.id);
        self.model.granted.extend((0..count).map(|at| block_id(container, first + at)));
        let expires_ms = self.now_ms + LIFE_MS;
        let new = Grant { holder, expires_ms, container, first, count, epoch_now: 1, used: BTreeSet::new() };
        self.model.grants.insert(grant.id, new);
    }

    fn any_grant(&self) -> Option<(u64, usize)> {
        let ids = &self.model.grant_ids;
        ids.get(self.pick(ids.len().max(1))).map(|id| (*id, self.pick(2)))
    }

    fn renew_or_raise(&mut self) {
        let Some((id, writer)) = self.any_grant() else { return };
        let own = self.model.grants.get(&id).is_some_and(|grant| grant.holder == writer);
        let want = (!own).then_some(ErrorCode::GrantExpired);
        if self.chance(2) {
            let renew = Command::RenewGrant { holder: client(writer), grant: GrantId(id), life_ms: LIFE_MS };
            let outcome = self.run(renew);
            if self.expect("renew", &outcome, want) {
                self.model.grants.get_mut(&id).unwrap().expires_ms = self.now_ms + LIFE_MS;
            }
            return;
        }
        let epoch = 1 + self.pick(4) as u32;
        let container = self.model.grants.get(&id).map_or(1, |grant| grant.container);
        let container = ContainerId::new(container).unwrap();
        let outcome = self.run(Command::RecordEpoch { holder: client(writer), grant: GrantId(id), container, epoch });
        if self.expect("record epoch", &outcome, want) {
            let grant = self.model.grants.get_mut(&id).unwrap();
            grant.epoch_now = grant.epoch_now.max(epoch);
            let Ok(Reply::FailedWrite(reply)) = outcome else { panic!("{outcome:?}") };
            assert_eq!(reply.epoch, grant.epoch_now);
        }
    }

    fn end_grant(&mut self) {
        if self.chance(2) {
            let Some((id, writer)) = self.any_grant() else { return };
            let outcome = self.run(Command::ReleaseGrant { holder: client(writer), grant: GrantId(id) });
            self.expect("release", &outcome, None);
            if self.model.grants.get(&id).is_some_and(|grant| grant.holder == writer) {
                self.model.grants.remove(&id);
            }
            return;
        }
        self.now_ms += self.rng.below(LIFE_MS);
        let grants = self.model.grant_ids.iter().map(|id| GrantId(*id)).collect();
        let outcome = self.run(Command::ExpireGrants { grants });
        self.expect("expire", &outcome, None);
        let now_ms = self.now_ms;
        self.model.grants.retain(|_, grant| grant.expires_ms > now_ms);
    }

    fn commit_blocks(&mut self) {
        let (at, key, writer) = (self.any_address(), self.any_key(), self.pick(2));
        let lengths: Vec<u64> = (0..self.pick(4)).map(|_| 1 + self.rng.below(BLOCK_MAX)).collect();
        let length = lengths.iter().sum();
        let conditions = self.any_conditions();
        let (blocks, grants, wrong) = self.any_blocks(writer, &lengths);
        let length_wrong = !blocks.is_empty() && blocks.iter().map(|block| block.length).sum::<u64>() != length;
        let existing = self.model.buckets.get(&at).and_then(|bucket| bucket.keys.get(&key));
        let before = self.missing(&at).or_else(|| Self::judge(&conditions, existing));
        let want = before.or(length_wrong.then_some(ErrorCode::InvalidArgument)).or(wrong);
        let md5 = Bytes::from(vec![self.pick(2) as u8; 16]);
        let outcome = self.run(Command::CommitKey(CommitKey {
            holder: client(writer),
            owner: "w".into(),
            address: address(&at),
            bucket: None,
            key: name(&key),
            length,
            facts: Facts { etag_md5: md5.clone(), ..Facts::default() },
            data: Data::Blocks { blocks: blocks.clone(), grants },
            conditions,
            members: 1,
        }));
        if !self.expect("commit", &outcome, want) {
            self.unmark(&blocks, wrong);
            return;
        }
        let Ok(Reply::KeyCommitted(reply)) = outcome else { panic!("{outcome:?}") };
        let blocks = blocks.iter().map(|block| block.id).collect();
        let object = Object { generation: reply.generation, length, md5, blocks, inline: None, upload: None };
        let old = self.model.buckets.get_mut(&at).unwrap().keys.insert(key, object);
        assert_eq!(reply.replaced, old.is_some());
    }

    fn commit_inline(&mut self) {
        let (at, key) = (self.any_address(), self.any_key());
        let bytes = Bytes::from(vec![9; self.pick(3) * 3000]);
        let conditions = self.any_conditions();
        let members = 1 + self.pick(2) as u32;
        let existing = self.model.buckets.get(&at).and_then(|bucket| bucket.keys.get(&key));
        let want = self.missing(&at).or_else(|| Self::judge(&conditions, existing)).or_else(|| {
            let allowed = if self.model.buckets[&at].always_inline || members >= 2 { 4096 } else { 0 };
            (bytes.len() > allowed).then_some(ErrorCode::TooLarge)
        });
        let md5 = Bytes::from(vec![self.pick(2) as u8; 16]);
        let length = bytes.len() as u64;
        let outcome = self.run(Command::CommitKey(CommitKey {
            holder: client(0),
            owner: "o".into(),
            address: address(&at),
            bucket: None,
            key: name(&key),
            length,
            facts: Facts { etag_md5: md5.clone(), ..Facts::default() },
            data: Data::Inline(bytes.clone()),
            conditions,
            members,
        }));
        if self.expect("commit inline", &outcome, want) {
            let Ok(Reply::KeyCommitted(reply)) = outcome else { panic!("{outcome:?}") };
            let inline = (!bytes.is_empty()).then_some(bytes);
            let object = Object { generation: reply.generation, length, md5, blocks: Vec::new(), inline, upload: None };
            self.model.buckets.get_mut(&at).unwrap().keys.insert(key, object);
        }
    }

    fn delete(&mut self) {
        let (at, key, conditions, must_exist) =
            (self.any_address(), self.any_key(), self.any_conditions(), self.chance(2));
        let existing = self.model.buckets.get(&at).and_then(|bucket| bucket.keys.get(&key));
        let want = self
            .missing(&at)
            .or_else(|| Self::judge(&conditions, existing))
            .or_else(|| (existing.is_none() && must_exist).then_some(ErrorCode::KeyNotFound));
        let command = Command::DeleteKey { address: address(&at), key: name(&key), conditions, must_exist };
        let outcome = self.run(command);
        if self.expect("delete", &outcome, want) {
            self.model.buckets.get_mut(&at).unwrap().keys.remove(&key);
        }
    }

    fn delete_many(&mut self) {
        let at = self.any_address();
        let keys: Vec<Vec<u8>> = (0..self.pick(5)).map(|_| self.any_key()).collect();
        let mut named: Vec<Result<KeyName, Error>> = keys.iter().map(|key| Ok(name(key))).collect();
        named.push(KeyName::new(Bytes::new()));
        let want = self.missing(&at);
        let outcome = self.run(Command::DeleteKeys { address: address(&at), keys: named });
        if self.expect("delete keys", &outcome, want) {
            let Ok(Reply::Deleted(reply)) = outcome else { panic!("{outcome:?}") };
            let codes: Vec<u32> = reply.errors.iter().map(|error| error.code).collect();
            let mut want = vec![0; keys.len()];
            want.push(ErrorCode::InvalidKeyName as u32);
            assert_eq!(codes, want);
            let bucket = self.model.buckets.get_mut(&at).unwrap();
            keys.iter().for_each(|key| drop(bucket.keys.remove(key)));
        }
    }

    fn initiate(&mut self) {
        let (at, key) = (self.any_address(), self.any_key());
        let want = self.missing(&at);
        let outcome = self.run(Command::InitiateUpload(InitiateUpload {
            address: address(&at),
            key: name(&key),
            owner: "o".into(),
            facts: Facts::default(),
            random: 5,
        }));
        if self.expect("initiate", &outcome, want) {
            let Ok(Reply::UploadInitiated(reply)) = outcome else { panic!("{outcome:?}") };
            let id = UploadId::parse(&reply.upload).unwrap();
            self.model.upload_ids.push((at.0.clone(), at.1.clone(), key.clone(), id));
            let upload = Upload { key, parts: BTreeMap::new() };
            self.model.buckets.get_mut(&at).unwrap().uploads.insert(id, upload);
        }
    }

    fn any_upload(&self) -> Option<((String, String), Vec<u8>, UploadId)> {
        let ids = &self.model.upload_ids;
        ids.get(self.pick(ids.len().max(1)))
            .map(|(volume, bucket, key, id)| ((volume.clone(), bucket.clone()), key.clone(), *id))
    }

    fn commit_part(&mut self) {
        let Some((at, key, id)) = self.any_upload() else { return };
        let (writer, part) = (self.pick(2), 1 + self.pick(4) as u16);
        let length = if self.chance(6) { 10 } else { PART_LENGTH_MIN };
        let (blocks, grants, wrong) = self.any_blocks(writer, &[length]);
        let known = self.model.buckets.get(&at).is_some_and(|bucket| bucket.uploads.contains_key(&id));
        let before = self.missing(&at).or_else(|| (!known).then_some(ErrorCode::UploadNotFound));
        let md5 = Bytes::from(vec![self.pick(2) as u8; 16]);
        let outcome = self.run(Command::CommitPart(CommitPart {
            holder: client(writer),
            address: address(&at),
            key: name(&key),
            upload: id,
            part,
            length,
            md5: md5.clone(),
            checksum: None,
            blocks: blocks.clone(),
            grants,
        }));
        if !self.expect("commit part", &outcome, before.or(wrong)) {
            self.unmark(&blocks, wrong);
            return;
        }
        let blocks = blocks.iter().map(|block| block.id).collect();
        let upload = self.model.buckets.get_mut(&at).unwrap().uploads.get_mut(&id).unwrap();
        upload.parts.insert(part, (length, md5, blocks));
    }

    fn complete(&mut self) {
        let Some((at, key, id)) = self.any_upload() else { return };
        let conditions = self.any_conditions();
        let bucket = self.model.buckets.get(&at);
        let upload = bucket.and_then(|bucket| bucket.uploads.get(&id)).cloned();
        let existing = bucket.and_then(|bucket| bucket.keys.get(&key)).cloned();
        let mut parts: Vec<om::CompletedPart> = upload
            .iter()
            .flat_map(|upload| &upload.parts)
            .filter(|_| !self.chance(5))
            .map(|(part, (_, md5, _))| om::CompletedPart { part: u32::from(*part), md5: md5.clone(), checksum: None })
            .collect();
        let chosen: Vec<u16> = parts.iter().map(|part| part.part as u16).collect();
        let mut wrong = None;
        match self.pick(10) {
            0 if parts.len() > 1 => {
                parts.swap(0, 1);
                wrong = Some(ErrorCode::InvalidPartOrder);
            }
            1 if !parts.is_empty() => {
                parts[0].md5 = vec![7; 16].into();
                wrong = Some(ErrorCode::InvalidPart);
            }
            2 => {
                parts.push(om::CompletedPart { part: 9, md5: Bytes::new(), checksum: None });
                wrong = Some(ErrorCode::InvalidPart);
            }
            _ => {}
        }
        let empty = parts.is_empty();
        let repeated = existing.as_ref().is_some_and(|object| object.upload == Some(id));
        let want = self.missing(&at).or_else(|| match &upload {
            None if repeated => None,
            None => Some(ErrorCode::UploadNotFound),
            Some(upload) => Self::judge(&conditions, existing.as_ref())
                .or(empty.then_some(ErrorCode::InvalidArgument))
                .or(wrong)
                .or_else(|| {
                    let before_last = &chosen[..chosen.len().saturating_sub(1)];
                    let small = before_last.iter().any(|part| upload.parts[part].0 < PART_LENGTH_MIN);
                    small.then_some(ErrorCode::EntityTooSmall)
                }),
        });
        let outcome = self.run(Command::CompleteUpload(CompleteUpload {
            address: address(&at),
            key: name(&key),
            upload: id,
            parts,
            checksum: None,
            expected_length: 0,
            conditions,
        }));
        if !self.expect("complete", &outcome, want) {
            return;
        }
        let Ok(Reply::KeyCommitted(reply)) = outcome else { panic!("{outcome:?}") };
        let Some(upload) = upload else {
            assert_eq!(reply.generation, existing.unwrap().generation, "the same success again");
            return;
        };
        let bucket = self.model.buckets.get_mut(&at).unwrap();
        bucket.uploads.remove(&id);
        let parts: Vec<_> = chosen.iter().map(|part| &upload.parts[part]).collect();
        let object = Object {
            generation: reply.generation,
            length: parts.iter().map(|part| part.0).sum(),
            md5: super::multipart_checksum::etag(parts.iter().map(|part| &part.1)).unwrap(),
            blocks: parts.iter().flat_map(|part| part.2.clone()).collect(),
            inline: None,
            upload: Some(id),
        };
        bucket.keys.insert(upload.key, object);
    }

    fn abort(&mut self) {
        let Some((at, key, id)) = self.any_upload() else { return };
        let known = self.model.buckets.get(&at).is_some_and(|bucket| bucket.uploads.contains_key(&id));
        let want = self.missing(&at).or_else(|| (!known).then_some(ErrorCode::UploadNotFound));
        let outcome = self.run(Command::AbortUpload { address: address(&at), key: name(&key), upload: id });
        if self.expect("abort", &outcome, want) {
            self.model.buckets.get_mut(&at).unwrap().uploads.remove(&id);
        }
    }

    /// What the loops do: reclaim some parts, hand over what is due.
    fn purge(&mut self) {
        let limit = 1 + self.pick(3);
        let parts = |world: &Self| {
            let view = View::new(&world.store, &world.overlay);
            view.scan_prefix(crate::tables::part::TABLE, &[], std::ops::Bound::Unbounded).unwrap().count()
        };
        let before = parts(self);
        let outcome = self.run(Command::ReclaimParts { limit });
        self.expect("reclaim", &outcome, None);
        assert!(before - parts(self) <= limit, "a step is bounded");
        self.now_ms += self.rng.below(2 * SETTINGS.read_token_life_ms);
        self.apply(0);
        let plan = crate::background::key_purge::plan(&self.store, self.now_ms).unwrap();
        if plan.through == 0 {
            return;
        }
        for container in &plan.containers {
            for range in &container.ranges {
                for at in 0..range.count {
                    let block = block_id(container.container, range.first + at);
                    assert!(self.model.purged.insert(block), "{block:#x} is handed over once");
                }
            }
        }
        let outcome = self.run(Command::Purged { from: plan.from, through: plan.through });
        self.expect("purged", &outcome, None);
    }

    fn secret(&mut self) {
        let user = format!("user{}", self.pick(2));
        let known = self.model.secrets.get(&user).cloned();
        if self.chance(3) {
            let outcome = self.run(Command::RevokeSecret { user: user.clone() });
            if self.expect("revoke", &outcome, known.is_none().then_some(ErrorCode::SecretNotFound)) {
                self.model.secrets.remove(&user);
            }
            return;
        }
        let (create, fresh) = (self.chance(2), format!("{:016x}", self.rng.next_u64()));
        let want = (known.is_none() && !create).then_some(ErrorCode::SecretNotFound);
        let outcome = self.run(Command::GetSecret { user: user.clone(), create, fresh: fresh.clone() });
        if self.expect("secret", &outcome, want) {
            let Ok(Reply::Secret(reply)) = outcome else { panic!("{outcome:?}") };
            assert_eq!(reply.created, known.is_none());
            assert_eq!(reply.secret_key, known.unwrap_or_else(|| fresh.clone()));
            self.model.secrets.insert(user, reply.secret_key);
        }
    }

    /// Contents and invariants.
    fn check(&mut self) {
        self.apply(0);
        assert!(self.overlay.is_empty());
        assert_eq!(invariants::check(&self.store).unwrap(), Vec::<String>::new());
        let lost = invariants::check_none_lost(&self.store, &self.model.granted, &self.model.purged).unwrap();
        assert_eq!(lost, Vec::<String>::new());
        for (at, bucket) in &self.model.buckets {
            let at = address(at);
            let info = read::info_bucket(&self.store, &at, 4096, 1).unwrap();
            assert_eq!(info.key_count, bucket.keys.len() as u64);
            assert_eq!(info.used_bytes, bucket.keys.values().map(|object| object.length).sum::<u64>());
            let listed = list::keys(&self.store, &at, &om::ListKeys::default()).unwrap();
            let names: Vec<&[u8]> = listed.keys.iter().map(|info| info.key.as_ref()).collect();
            assert_eq!(names, bucket.keys.keys().map(Vec::as_slice).collect::<Vec<_>>());
            for (key, object) in &bucket.keys {
                let found = read::find_key(&self.store, &at, &name(key), 0).unwrap();
                let found = read::describe_key(&self.store, &name(key), &found, true).unwrap();
                assert_eq!((found.info.length, found.info.generation), (object.length, object.generation));
                assert_eq!(found.info.meta.unwrap().etag_md5, object.md5);
                assert_eq!(found.inline, object.inline);
                let blocks: Vec<u64> = found.blocks.iter().map(|(id, ..)| id.get()).collect();
                assert_eq!(blocks, object.blocks);
                assert!(blocks.iter().all(|block| BlockId::new(*block).is_some()));
            }
            let listed = list::uploads(&self.store, &at, &om::ListUploads::default()).unwrap();
            let ids: BTreeSet<String> = listed.uploads.into_iter().map(|upload| upload.upload).collect();
            assert_eq!(ids, bucket.uploads.keys().map(UploadId::to_string).collect());
        }
    }
}

pub(super) fn address(at: &(String, String)) -> Address {
    Address { volume: VolumeName::new(&*at.0).unwrap(), bucket: BucketName::new(&*at.1).unwrap() }
}

pub(super) fn name(key: &[u8]) -> KeyName {
    KeyName::new(key.to_vec()).unwrap()
}

#[test]
fn random_histories_equal_the_model() {
    let mut seen: BTreeMap<(String, bool), u32> = BTreeMap::new();
    for seed in 0..48 {
        let mut world = World::new(seed);
        for step in 0..250 {
            world.step();
            if step % 50 == 49 {
                world.check();
            }
        }
        world.check();
        // In the end everything goes, and every block that was ever granted has been handed over.
        world.drain();
        for (kind, count) in world.seen.take() {
            *seen.entry(kind).or_default() += count;
        }
    }
    for what in
        ["commit", "commit inline", "commit part", "complete", "abort", "delete", "renew", "record epoch", "revoke"]
    {
        for done in [true, false] {
            let count = seen.get(&(what.to_owned(), done)).copied().unwrap_or(0);
            assert!(count >= 20, "`{what}` with success {done}: {count} times");
        }
    }
}

impl World {
    fn drain(&mut self) {
        for (at, bucket) in std::mem::take(&mut self.model.buckets) {
            for (key, _) in bucket.keys {
                let command = Command::DeleteKey {
                    address: address(&at),
                    key: name(&key),
                    conditions: Conditions::default(),
                    must_exist: true,
                };
                self.run(command).unwrap();
            }
            for (id, upload) in bucket.uploads {
                self.run(Command::AbortUpload { address: address(&at), key: name(&upload.key), upload: id }).unwrap();
            }
            self.run(Command::DeleteBucket { address: address(&at) }).unwrap();
        }
        self.now_ms += 2 * LIFE_MS;
        let grants = self.model.grant_ids.iter().map(|id| GrantId(*id)).collect();
        self.run(Command::ExpireGrants { grants }).unwrap();
        self.model.grants.clear();
        for _ in 0..1000 {
            self.now_ms += SETTINGS.read_token_life_ms;
            self.purge();
        }
        self.check();
        assert_eq!(self.model.purged, self.model.granted);
        for table in [deleted::TABLE, deleted::PARTS, crate::tables::part::TABLE, crate::tables::value::TABLE] {
            let left = self.store.scan_prefix(table, &[], std::ops::Bound::Unbounded).unwrap().count();
            assert_eq!(left, 0, "{table:?}");
        }
    }
}
