//! Records: what a segment file is made of. Pure; docs/formats/segment.md is the description, its example is checked here.
//!
//! Every record says itself what it is, where it lies and which segment it belongs to, under a CRC32C of its own; so a scan from any
//! record on finds the rest, and bytes that were written to a wrong place or left by another file are never taken for data.
//!
//! `durable_to` tells how much of the segment had been synced when the record was written. It separates a torn tail from damage:
//! bad bytes below the `durable_to` of any later record were once on disk, so they are damage, not a write that never completed.

use ozone_common::checksum::{crc32c, first_mismatch};
use ozone_common::id::{BlockId, ContainerId};
use ozone_common::limits::{BLOCK_LENGTH_MAX, BYTES_PER_CHECKSUM, FRAME_PAYLOAD_MAX};

/// Bytes of a record before its words.
pub(crate) const HEADER_BYTES: usize = 48;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGN: u64 = 8;
/// Payloads of [`Header::paged`] records begin at multiples of this, so that their pages can be given back.
pub(crate) const PAGE: u64 = 4096;
/// LIMIT: words after a header: the checksums of the largest chunk.
pub(crate) const WORDS_MAX: usize = FRAME_PAYLOAD_MAX / BYTES_PER_CHECKSUM;
/// LIMIT: bytes of a segment, since positions are kept in units of 8 bytes in 32 bits.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 35;

const MAGIC: u32 = u32::from_le_bytes(*b"O3R1");
const FLAG_PAGED: u8 = 1;

const _: () = assert!(WORDS_MAX <= u16::MAX as usize);
const _: () = assert!(BLOCK_LENGTH_MAX <= u32::MAX as u64);

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A whole block, final. Payload; words are its checksums.
    Put = 1,
    /// Bytes `offset..offset + length` of a block. Payload; words are their checksums.
    Chunk = 2,
    /// The block is final at `length`.
    Finish = 3,
    /// The block is final at `length` under `epoch`, whatever it held before. A word: checksum of the last window, where it was cut.
    Seal = 4,
    /// Nothing below `epoch` is taken for the block.
    Promise = 5,
    /// `length` blocks from this one on are deleted for good. Words: the transaction, low half first.
    Tombstone = 6,
    /// What there is of a block that was never finished is dropped; its replica closes.
    Discard = 7,
    /// Nothing follows: all before is durable.
    End = 8,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Put,
            2 => Self::Chunk,
            3 => Self::Finish,
            4 => Self::Seal,
            5 => Self::Promise,
            6 => Self::Tombstone,
            7 => Self::Discard,
            8 => Self::End,
            _ => return None,
        })
    }

    /// Whether payload follows the words.
    pub(crate) fn has_payload(self) -> bool {
        matches!(self, Self::Put | Self::Chunk)
    }
}

/// A record without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub kind: Kind,
    /// The payload begins at a multiple of [`PAGE`].
    pub paged: bool,
    pub epoch: u32,
    /// Of [`Kind::End`]: local number 0 of the container.
    pub block: BlockId,
    /// Where in the block the payload begins.
    pub offset: u32,
    /// Bytes of payload; of the block (`Finish`, `Seal`); blocks (`Tombstone`).
    pub length: u32,
    /// Bytes of the segment that were durable when this was written.
    pub durable_to: u64,
    /// Where in the segment it lies.
    pub position: u64,
    pub segment: u32,
    /// CRC32C of the block up to the end of this payload, or to `length`.
    pub block_crc: u32,
    pub words: Vec<u32>,
}

impl Header {
    /// Where in the segment the payload begins.
    pub(crate) fn payload_start(&self) -> u64 {
        payload_start(self.paged, self.position, self.words.len())
    }

    /// Bytes of payload.
    pub(crate) fn payload_bytes(&self) -> u64 {
        if self.kind.has_payload() { u64::from(self.length) } else { 0 }
    }

    /// Where the next record begins.
    pub(crate) fn end(&self) -> u64 {
        (self.payload_start() + self.payload_bytes()).next_multiple_of(RECORD_ALIGN)
    }

    /// Header and words as they lie on disk, with the padding before a paged payload.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        debug_assert!(self.position.is_multiple_of(RECORD_ALIGN) && self.durable_to.is_multiple_of(RECORD_ALIGN));
        let from = into.len();
        into.extend_from_slice(&MAGIC.to_le_bytes());
        into.extend_from_slice(&[0; 4]);
        into.push(self.kind as u8);
        into.push(if self.paged { FLAG_PAGED } else { 0 });
        into.extend_from_slice(&(self.words.len() as u16).to_le_bytes());
        into.extend_from_slice(&self.epoch.to_le_bytes());
        into.extend_from_slice(&self.block.get().to_le_bytes());
        into.extend_from_slice(&self.offset.to_le_bytes());
        into.extend_from_slice(&self.length.to_le_bytes());
        into.extend_from_slice(&((self.durable_to / RECORD_ALIGN) as u32).to_le_bytes());
        into.extend_from_slice(&((self.position / RECORD_ALIGN) as u32).to_le_bytes());
        into.extend_from_slice(&self.block_crc.to_le_bytes());
        into.extend_from_slice(&self.segment.to_le_bytes());
        for word in &self.words {
            into.extend_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(&into[from + 8..]);
        into[from + 4..from + 8].copy_from_slice(&crc.to_le_bytes());
        let start = self.payload_start() - self.position;
        into.resize(from + start as usize, 0);
    }

    /// Bytes of header and words that a record needs, from its first [`HEADER_BYTES`]; `None` where these begin no record.
    pub(crate) fn needed(bytes: &[u8]) -> Option<usize> {
        if u32_at(bytes, 0)? != MAGIC {
            return None;
        }
        let words = usize::from(u16::from_le_bytes(bytes.get(10..12)?.try_into().ok()?));
        (words <= WORDS_MAX).then_some(HEADER_BYTES + 4 * words)
    }

    /// The record that begins with `bytes` (which may go on beyond it) at `position` of segment `segment` of `container`.
    /// `None` where it is not there, damaged, or belongs elsewhere.
    pub(crate) fn decode(bytes: &[u8], container: ContainerId, segment: u32, position: u64) -> Option<Self> {
        let bytes = bytes.get(..Self::needed(bytes)?)?;
        if u32_at(bytes, 4)? != crc32c(&bytes[8..]) {
            return None;
        }
        let block = BlockId::new(u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?))?;
        let header = Self {
            kind: Kind::from_number(bytes[8])?,
            paged: bytes[9] == FLAG_PAGED,
            epoch: u32_at(bytes, 12)?,
            block,
            offset: u32_at(bytes, 24)?,
            length: u32_at(bytes, 28)?,
            durable_to: u64::from(u32_at(bytes, 32)?) * RECORD_ALIGN,
            position: u64::from(u32_at(bytes, 36)?) * RECORD_ALIGN,
            block_crc: u32_at(bytes, 40)?,
            segment: u32_at(bytes, 44)?,
            words: bytes[HEADER_BYTES..].chunks_exact(4).filter_map(|word| u32_at(word, 0)).collect(),
        };
        let here = header.position == position && header.segment == segment && block.container() == container;
        (here && bytes[9] & !FLAG_PAGED == 0 && header.makes_sense()).then_some(header)
    }

    /// Relations between fields that every writer keeps.
    fn makes_sense(&self) -> bool {
        let windows = (self.length as usize).div_ceil(BYTES_PER_CHECKSUM);
        let (offset, length) = (u64::from(self.offset), u64::from(self.length));
        let within = match self.kind {
            Kind::Put => self.words.len() == windows && offset == 0,
            Kind::Chunk => self.words.len() == windows && offset + length <= BLOCK_LENGTH_MAX && windows > 0,
            Kind::Finish => self.words.is_empty() && length <= BLOCK_LENGTH_MAX,
            Kind::Seal => self.words.len() <= 1 && length <= BLOCK_LENGTH_MAX,
            Kind::Promise | Kind::Discard | Kind::End => self.words.is_empty(),
            Kind::Tombstone => {
                self.words.len() == 2
                    && length > 0
                    && u64::from(self.block.local()) + length <= 1 << ozone_common::id::LOCAL_BITS
            }
        };
        within && self.durable_to <= self.position && (self.kind.has_payload() || !self.paged)
    }

    /// Whether `payload` is what the words say.
    pub(crate) fn payload_matches(&self, payload: &[u8]) -> bool {
        payload.len() as u64 == self.payload_bytes() && first_mismatch(payload, &self.words).is_none()
    }

    /// The delete transaction of a tombstone.
    pub(crate) fn transaction(&self) -> u64 {
        match self.words[..] {
            [low, high] => u64::from(low) | u64::from(high) << 32,
            _ => 0,
        }
    }
}

fn payload_start(paged: bool, position: u64, words: usize) -> u64 {
    let after = position + (HEADER_BYTES + 4 * words) as u64;
    if paged { after.next_multiple_of(PAGE) } else { after }
}

/// What a record with payload takes of its segment, known without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub payload_start: u64,
    /// Where the next record begins.
    pub end: u64,
}

impl Extent {
    /// Of the record at `position` with `length` bytes of payload.
    pub(crate) fn of(paged: bool, position: u64, length: u32) -> Self {
        let payload_start = payload_start(paged, position, (length as usize).div_ceil(BYTES_PER_CHECKSUM));
        Self { payload_start, end: (payload_start + u64::from(length)).next_multiple_of(RECORD_ALIGN) }
    }

    /// Whole pages of a paged payload: what can be punched out.
    pub(crate) fn pages(&self) -> std::ops::Range<u64> {
        self.payload_start..(self.end / PAGE * PAGE).max(self.payload_start)
    }
}

/// The words of a tombstone.
pub(crate) fn transaction_words(transaction: u64) -> Vec<u32> {
    vec![transaction as u32, (transaction >> 32) as u32]
}

/// First bytes of a segment file: what it is, so that a file in a wrong folder is not taken for another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHead {
    pub container: ContainerId,
    pub segment: u32,
    pub paged: bool,
}

/// Bytes of a [`SegmentHead`]; the first record follows.
pub(crate) const SEGMENT_HEAD_BYTES: u64 = 32;
const SEGMENT_MAGIC: &[u8; 8] = b"O3SEGM\0\x01";

impl SegmentHead {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEAD_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEAD_BYTES as usize];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..16].copy_from_slice(&self.container.get().to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment.to_le_bytes());
        bytes[20] = u8::from(self.paged);
        let crc = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SEGMENT_HEAD_BYTES as usize)?;
        if &bytes[..8] != SEGMENT_MAGIC || u32_at(bytes, 28)? != crc32c(&bytes[..28]) {
            return None;
        }
        let container = ContainerId::new(u64::from_le_bytes(bytes[8..16].try_into().ok()?))?;
        Some(Self { container, segment: u32_at(bytes, 16)?, paged: bytes[20] == 1 })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use ozone_common::checksum::windows;
    use proptest::prelude::*;

    use super::*;

    fn container() -> ContainerId {
        ContainerId::new(7).unwrap()
    }

    fn put(payload: &[u8], paged: bool) -> Header {
        Header {
            kind: Kind::Put,
            paged,
            epoch: 3,
            block: container().block(9).unwrap(),
            offset: 0,
            length: payload.len() as u32,
            durable_to: 64,
            position: 4160,
            segment: 2,
            block_crc: crc32c(payload),
            words: windows(payload),
        }
    }

    fn image(header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Whether the bytes are a whole record with its payload.
    fn whole(bytes: &[u8], position: u64) -> bool {
        let Some(header) = Header::decode(bytes, container(), 2, position) else { return false };
        let start = (header.payload_start() - position) as usize;
        bytes.get(start..start + header.payload_bytes() as usize).is_some_and(|p| header.payload_matches(p))
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        for paged in [false, true] {
            let payload: Vec<u8> = (0..300u32).map(|i| i as u8).collect();
            let header = put(&payload, paged);
            let bytes = image(&header, &payload);
            assert!(whole(&bytes, header.position));
            let padding = HEADER_BYTES + 4 * header.words.len()..(header.payload_start() - header.position) as usize;
            for bit in 0..bytes.len() * 8 {
                if padding.contains(&(bit / 8)) {
                    continue;
                }
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(!whole(&flipped, header.position), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_record_elsewhere_is_not_taken() {
        let header = put(b"abc", false);
        let bytes = image(&header, b"abc");
        assert!(Header::decode(&bytes, container(), 2, 4160).is_some());
        assert!(Header::decode(&bytes, container(), 2, 4168).is_none());
        assert!(Header::decode(&bytes, container(), 3, 4160).is_none());
        assert!(Header::decode(&bytes, ContainerId::new(8).unwrap(), 2, 4160).is_none());
    }

    #[test]
    fn a_small_object_costs_few_bytes() {
        let header = put(&[0; 4096], false);
        assert_eq!(header.end() - header.position, 4096 + 56);
    }

    #[test]
    fn the_documented_example() {
        let text = include_str!("../../../docs/formats/segment.md");
        let hex: String = text
            .split("```hex\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .expect("the page has an example")
            .lines()
            .map(|line| line.split('#').next().unwrap_or(""))
            .collect();
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect();
        let head = SegmentHead { container: container(), segment: 2, paged: false };
        let header = Header { position: 32, durable_to: 32, ..put(b"123456789", false) };
        let mut expected = head.encode().to_vec();
        header.encode(&mut expected);
        expected.extend_from_slice(b"123456789");
        expected.resize(header.end() as usize, 0);
        let shown: Vec<String> = expected.chunks(8).map(|c| c.iter().map(|b| format!("{b:02x} ")).collect()).collect();
        assert_eq!(bytes, expected, "\n{}", shown.join("\n"));
        assert_eq!(SegmentHead::decode(&bytes), Some(head));
    }

    fn kinds() -> impl Strategy<Value = Header> {
        let fields = (1..=8u8, any::<bool>(), any::<u32>(), 0..1u32 << 24, any::<u32>(), any::<u64>(), any::<u32>());
        fields.prop_map(|(kind, paged, epoch, local, crc, transaction, segment)| {
            let kind = Kind::from_number(kind).unwrap();
            let length = match kind {
                Kind::Tombstone => 1,
                Kind::Put | Kind::Chunk => 1 + epoch % (1 << 20),
                _ => epoch % (1 << 28),
            };
            let words = match kind {
                Kind::Put | Kind::Chunk => vec![crc; (length as usize).div_ceil(BYTES_PER_CHECKSUM)],
                Kind::Tombstone => transaction_words(transaction),
                _ => Vec::new(),
            };
            let position = (transaction % (1 << 30)) * 8;
            Header {
                kind,
                paged: paged && kind.has_payload(),
                epoch,
                block: container().block(local).unwrap(),
                offset: if kind == Kind::Chunk { crc % (1 << 20) } else { 0 },
                length,
                durable_to: position / 16 * 8,
                position,
                segment,
                block_crc: crc,
                words,
            }
        })
    }

    proptest! {
        #[test]
        fn round_trip(header in kinds()) {
            let mut bytes = Vec::new();
            header.encode(&mut bytes);
            prop_assert_eq!(bytes.len() as u64, header.payload_start() - header.position);
            prop_assert!(header.position + (HEADER_BYTES + 4 * header.words.len()) as u64 <= header.payload_start());
            prop_assert!(header.end().is_multiple_of(RECORD_ALIGN));
            if header.kind.has_payload() {
                let extent = Extent::of(header.paged, header.position, header.length);
                prop_assert_eq!((extent.payload_start, extent.end), (header.payload_start(), header.end()));
            }
            let back = Header::decode(&bytes, container(), header.segment, header.position);
            prop_assert_eq!(back, Some(header));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool) {
            if magic && bytes.len() >= 12 {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[11] = 0;
                // A right checksum, so that the fields are looked at.
                if let Some(needed) = Header::needed(&bytes).filter(|needed| *needed <= bytes.len()) {
                    let crc = crc32c(&bytes[8..needed]);
                    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
                }
            }
            let _ = SegmentHead::decode(&bytes);
            if let Some(header) = Header::decode(&bytes, container(), 1, 8) {
                prop_assert!(header.end() > 8);
            }
        }
    }
}
