//! The bytes of a log's files: docs/formats/raft-log.md. Pure; numbers are big-endian.
//!
//! A file is a [`Header`] and frames. A frame is what one append wrote and one fdatasync made durable: a frame header, records, and a
//! closing byte. Frames are numbered without gaps through all files, so that a missing or damaged one is noticed as soon as a later one is there.

use bytes::{Buf, BufMut, Bytes};
use crc_fast::{CrcAlgorithm, Digest};
use ozone_common::checksum::crc32c;

use super::Identity;
use crate::core::{Entry, EntryId, HardState, MemberId, Payload, Term};

const FILE_MAGIC: &[u8; 4] = b"O3RL";
const VERSION: u8 = 1;
/// Bytes before the first frame.
pub(super) const HEADER_BYTES: usize = 128;
const HEADER_USED: usize = 100;
/// The file starts the log anew: what files before it hold is void.
const FLAG_RESET: u8 = 1;

const FRAME_MAGIC: &[u8; 4] = b"O3RF";
/// Bytes of a frame before its first record.
pub(super) const FRAME_HEADER_BYTES: usize = 24;
/// Bytes of a record before its body.
pub(super) const RECORD_HEADER_BYTES: usize = 28;
/// Frames begin at multiples of it.
pub(super) const ALIGNMENT: usize = 8;
/// Last byte of a frame. Not zero, so that a write that did not reach its end is told from a complete one.
pub(super) const CLOSING: u8 = 0x5a;
/// LIMIT: bytes of one frame; a longer length in a header is damage, not a reason to allocate.
pub(super) const FRAME_BYTES_MAX: usize = 128 << 20;
/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Record kind of a hard state. Entries have the kind of their payload ([`Payload::kind`]).
const KIND_HARD_STATE: u8 = 0xff;

/// The beginning of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub identity: Identity,
    /// Number of the file: 1, 2, 3, … without gaps.
    pub file: u64,
    /// Number of its first frame.
    pub first_frame: u64,
    /// The entry before its first.
    pub previous: EntryId,
    /// As it stood when the file was made.
    pub hard_state: HardState,
    /// Mixed into its checksums, so that bytes of users that look like a frame are not taken for one.
    pub salt: u32,
    /// Whether the log starts anew here.
    pub reset: bool,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put_slice(FILE_MAGIC);
        bytes.put_u8(VERSION);
        bytes.put_u8(if self.reset { FLAG_RESET } else { 0 });
        bytes.put_u16(0);
        bytes.put_slice(&self.identity.group);
        bytes.put_u64(self.identity.member.0);
        bytes.put_u64(self.file);
        bytes.put_u64(self.first_frame);
        bytes.put_u64(self.previous.term.0);
        bytes.put_u64(self.previous.index.0);
        bytes.put_u64(self.hard_state.term.0);
        bytes.put_u64(self.hard_state.vote.map_or(0, |member| member.0));
        bytes.put_u32(self.salt);
        bytes.put_bytes(0, HEADER_USED - 4 - bytes.len());
        let checksum = crc32c(&bytes);
        bytes.put_u32(checksum);
        let mut header = [0; HEADER_BYTES];
        header[..HEADER_USED].copy_from_slice(&bytes);
        header
    }

    /// Reads a header; says what is wrong with it otherwise.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let Some((used, mut checksum)) =
            bytes.get(..HEADER_USED).and_then(|used| used.split_at_checked(HEADER_USED - 4))
        else {
            return Err(format!("its header has {} bytes; {HEADER_BYTES} are needed", bytes.len()));
        };
        let mut rest = used;
        let mut magic = [0; 4];
        rest.copy_to_slice(&mut magic);
        if &magic != FILE_MAGIC {
            return Err("it does not begin as a log file does".into());
        }
        let version = rest.get_u8();
        if version != VERSION {
            return Err(format!("its format has version {version}; this build reads version {VERSION}"));
        }
        if crc32c(used) != checksum.get_u32() {
            return Err("the checksum of its header is wrong".into());
        }
        let flags = rest.get_u8();
        rest.advance(2);
        let mut group = [0; 16];
        rest.copy_to_slice(&mut group);
        let member = MemberId(rest.get_u64());
        let (file, first_frame) = (rest.get_u64(), rest.get_u64());
        let previous = EntryId::new(rest.get_u64(), rest.get_u64());
        let (term, vote) = (Term(rest.get_u64()), rest.get_u64());
        Ok(Self {
            identity: Identity { group, member },
            file,
            first_frame,
            previous,
            hard_state: HardState { term, vote: (vote != 0).then_some(MemberId(vote)) },
            salt: rest.get_u32(),
            reset: flags & FLAG_RESET != 0,
        })
    }
}

/// The beginning of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    /// Its number.
    pub number: u64,
    /// Bytes of the whole frame: this header, records, padding, closing byte.
    pub bytes: usize,
    /// Records in it.
    pub records: u32,
}

impl FrameHeader {
    pub fn encode(&self, salt: u32) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES);
        bytes.put_slice(FRAME_MAGIC);
        bytes.put_u64(self.number);
        bytes.put_u32(self.bytes as u32);
        bytes.put_u32(self.records);
        let checksum = salted(salt, &[&bytes]);
        bytes.put_u32(checksum);
        bytes.try_into().expect("the fields above have as many bytes as the header")
    }

    pub fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let (used, mut checksum) = bytes.get(..FRAME_HEADER_BYTES)?.split_at(FRAME_HEADER_BYTES - 4);
        let mut rest = used.strip_prefix(FRAME_MAGIC)?;
        if salted(salt, &[used]) != checksum.get_u32() {
            return None;
        }
        let header = Self { number: rest.get_u64(), bytes: rest.get_u32() as usize, records: rest.get_u32() };
        let fits = (FRAME_HEADER_BYTES + ALIGNMENT..=FRAME_BYTES_MAX).contains(&header.bytes);
        (fits && header.bytes.is_multiple_of(ALIGNMENT)).then_some(header)
    }
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Record {
    /// Takes the place of the entry at its index and of all after it.
    Entry(Entry),
    /// Takes the place of the one before.
    HardState(HardState),
}

/// The beginning of a record with a body of `body`.
pub(super) fn record_header(kind: u8, id: EntryId, body: &[u8], salt: u32) -> [u8; RECORD_HEADER_BYTES] {
    let mut bytes = Vec::with_capacity(RECORD_HEADER_BYTES);
    bytes.put_u32(body.len() as u32);
    bytes.put_u8(kind);
    bytes.put_bytes(0, 3);
    bytes.put_u64(id.term.0);
    bytes.put_u64(id.index.0);
    let checksum = salted(salt, &[&bytes, body]);
    bytes.put_u32(checksum);
    bytes.try_into().expect("the fields above have as many bytes as the header")
}

/// A hard state as a record.
pub(super) fn hard_state_record(state: HardState, salt: u32) -> Vec<u8> {
    let body = state.vote.map_or(0, |member| member.0).to_be_bytes();
    let id = EntryId { term: state.term, ..EntryId::ZERO };
    [&record_header(KIND_HARD_STATE, id, &body, salt)[..], &body].concat()
}

/// Reads the record at the beginning of `bytes` and says how long it is. `None`: it is not whole.
pub(super) fn decode_record(bytes: &Bytes, salt: u32) -> Option<Result<(Record, usize), String>> {
    let (mut header, after) = bytes.split_at_checked(RECORD_HEADER_BYTES)?;
    let checked = &header[..RECORD_HEADER_BYTES - 4];
    let length = header.get_u32() as usize;
    let kind = header.get_u8();
    header.advance(3);
    let id = EntryId::new(header.get_u64(), header.get_u64());
    let body = after.get(..length)?;
    if salted(salt, &[checked, body]) != header.get_u32() {
        return None;
    }
    let end = RECORD_HEADER_BYTES + length;
    Some(if kind == KIND_HARD_STATE {
        hard_state(id, body).map(|state| (Record::HardState(state), end))
    } else {
        let payload = Payload::decode(kind, bytes.slice(RECORD_HEADER_BYTES..end));
        payload.map(|payload| (Record::Entry(Entry { id, payload }), end)).map_err(|error| error.to_string())
    })
}

fn hard_state(id: EntryId, mut body: &[u8]) -> Result<HardState, String> {
    let vote = body.try_get_u64().map_err(|_| "a hard state without a vote".to_owned())?;
    Ok(HardState { term: id.term, vote: (vote != 0).then_some(MemberId(vote)) })
}

/// Bytes of padding and closing byte after a frame's header and records.
pub(super) fn closing_bytes(bytes: usize) -> usize {
    (bytes + 1).next_multiple_of(ALIGNMENT) - bytes
}

fn salted(salt: u32, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&salt.to_be_bytes());
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// Whether the bytes of a bad frame can be those of a write that power loss or kill interrupted, over what was zeros before: then at
/// least one sector, or the end, is still zeros. A frame that is all there but wrong was damaged after it was written.
///
/// `rest` is the file from the frame's beginning, which lies at `offset`; `header` what its header says, if that much is good.
pub(super) fn may_be_torn(rest: &[u8], offset: u64, header: Option<FrameHeader>) -> bool {
    let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let Some(header) = header else {
        // Header and what follows in its sector are written together, so either is zeros unless the write stopped inside the header. A
        // header may lie in two sectors, of which either may be the one that was written.
        let (head, after) = rest.split_at(rest.len().min(FRAME_HEADER_BYTES));
        let (first, second) = head.split_at(head.len().min(SECTOR - (offset % SECTOR as u64) as usize));
        return zeros(first) || (!second.is_empty() && zeros(second)) || zeros(after);
    };
    let Some(frame) = rest.get(..header.bytes) else { return true };
    if frame.last() == Some(&0) {
        return true;
    }
    let first = SECTOR - (offset % SECTOR as u64) as usize;
    let (head, after) = frame.split_at(first.min(frame.len()));
    zeros(head) || after.chunks(SECTOR).any(zeros)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn header() -> Header {
        Header {
            identity: Identity { group: *b"group of one (om", member: MemberId(7) },
            file: 3,
            first_frame: 12,
            previous: EntryId::new(2, 40),
            hard_state: HardState { term: Term(2), vote: Some(MemberId(7)) },
            salt: 0xdead_beef,
            reset: false,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes
            .chunks(16)
            .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The examples of docs/formats/raft-log.md are what this code writes.
    #[test]
    fn the_documented_examples_are_true() {
        let doc = include_str!("../../../docs/formats/raft-log.md");
        let header = header();
        assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        let mut frame = hard_state_record(header.hard_state, header.salt);
        let entry = Entry { id: EntryId::new(2, 41), payload: Payload::Data(Bytes::from_static(b"rows")) };
        frame.extend(record_header(entry.payload.kind(), entry.id, b"rows", header.salt));
        frame.extend(b"rows");
        let bytes = FRAME_HEADER_BYTES + frame.len();
        let padding = closing_bytes(bytes);
        frame.resize(frame.len() + padding - 1, 0);
        frame.push(CLOSING);
        let frame_header = FrameHeader { number: 12, bytes: bytes + padding, records: 2 };
        let frame = [&frame_header.encode(header.salt)[..], &frame].concat();
        assert_eq!(FrameHeader::decode(&frame, header.salt), Some(frame_header));
        for example in [hex(&header.encode()), hex(&frame)] {
            assert!(doc.contains(&example), "docs/formats/raft-log.md should show\n{example}");
        }
    }

    #[test]
    fn headers_say_what_is_wrong() {
        let good = header().encode();
        let check = |at: usize, expected: &str| {
            let mut bytes = good;
            bytes[at] ^= 1;
            assert!(Header::decode(&bytes).unwrap_err().contains(expected), "{at}");
        };
        check(0, "does not begin");
        check(4, "version 0");
        check(20, "checksum");
        check(HEADER_USED - 1, "checksum");
        assert!(Header::decode(&good[..50]).unwrap_err().contains("50 bytes"));
    }

    #[test]
    fn a_header_is_torn_where_any_of_its_sectors_was_not_written() {
        for offset in (0..SECTOR as u64).step_by(ALIGNMENT) {
            let whole = [0xa5; FRAME_HEADER_BYTES + 40];
            assert!(!may_be_torn(&whole, offset, None), "all there, but wrong");
            let end = (SECTOR - offset as usize).min(whole.len());
            let (mut first, mut later) = (whole, whole);
            first[..end].fill(0);
            assert!(may_be_torn(&first, offset, None), "without the first sector, from {offset} on");
            later[end..].fill(0);
            // A header that lies in the first sector as a whole decodes without the second one.
            assert!(
                end >= FRAME_HEADER_BYTES || may_be_torn(&later, offset, None),
                "without the second one, from {offset} on"
            );
        }
    }

    proptest! {
        #[test]
        fn records_round_trip_and_a_flipped_bit_is_noticed(
            term in any::<u64>(), index in any::<u64>(), body in proptest::collection::vec(any::<u8>(), 0..40), salt in any::<u32>(),
            bit in any::<proptest::sample::Index>(),
        ) {
            let entry = Entry { id: EntryId::new(term, index), payload: Payload::Data(body.clone().into()) };
            let mut bytes = record_header(entry.payload.kind(), entry.id, &body, salt).to_vec();
            bytes.extend(&body);
            let length = bytes.len();
            prop_assert_eq!(decode_record(&bytes.clone().into(), salt), Some(Ok((Record::Entry(entry), length))));
            let bit = bit.index(length * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode_record(&bytes.into(), salt), None);
        }

        #[test]
        fn random_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), salt in any::<u32>()) {
            prop_assert_eq!(FrameHeader::decode(&bytes, salt), None);
            prop_assert_eq!(decode_record(&bytes.clone().into(), salt), None);
            prop_assert!(Header::decode(&bytes).is_err());
            may_be_torn(&bytes, 77, None);
        }
    }
}
