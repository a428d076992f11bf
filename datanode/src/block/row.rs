//! Rows of the index: where blocks lie. Pure; docs/formats/segment.md lists them.
//!
//! Keys are big-endian, so that a container's rows are neighbours and a range of blocks is a scan. Values are little-endian and
//! positional, since a lookup is on the path of every small read.

use bytes::Bytes;
use ozone_common::id::{BlockId, ContainerId};
use ozone_kvstore::{Table, TableOptions};

use super::record::{RECORD_ALIGN, SEGMENT_BYTES_MAX};

/// Block id → [`BlockRow`].
pub(crate) const BLOCKS: Table = Table("block");
/// Block id ‖ offset (u32) → [`PieceRow`]: the chunks of blocks that came in chunks.
pub(crate) const PIECES: Table = Table("piece");
/// Block id → nothing: blocks that are not final.
pub(crate) const UNFINISHED: Table = Table("unfinished");
/// First deleted block id → count (u32). Ranges of a container do not overlap and do not touch.
pub(crate) const TOMBSTONES: Table = Table("tombstone");
/// Container ‖ segment (u32) → [`SegmentRow`].
pub(crate) const SEGMENTS: Table = Table("segment");
/// Container → [`CountsRow`].
pub(crate) const COUNTS: Table = Table("counts");
/// Container ‖ segment (u32) ‖ start (u64) → length (u64): pages of deleted blocks not yet given back.
pub(crate) const HOLES: Table = Table("hole");

/// Every table and how it is used.
pub(crate) const TABLES: &[(Table, TableOptions)] = &[
    (BLOCKS, TableOptions::Rows),
    (PIECES, TableOptions::Rows),
    (UNFINISHED, TableOptions::Rows),
    (TOMBSTONES, TableOptions::Rows),
    (SEGMENTS, TableOptions::Rows),
    (COUNTS, TableOptions::Rows),
    (HOLES, TableOptions::Queue),
];

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub segment: u32,
    /// A multiple of 8.
    pub position: u64,
}

/// The end of a block that was cut within a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// Bytes of the whole block before the cut: of a [`Body::Whole`] those of its record.
    pub stored: u32,
    /// CRC32C of what is left of the last window; `None` where the cut is at a window's end.
    pub last_window: Option<u32>,
}

/// Where a block's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// In one record.
    Whole(Place),
    /// In the chunks listed in [`PIECES`].
    Pieces,
}

/// A block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockRow {
    /// Finished or sealed.
    pub is_final: bool,
    /// The epoch it was written, or sealed, under.
    pub epoch: u32,
    /// Nothing below this epoch is taken; at least `epoch`.
    pub promised: u32,
    pub length: u32,
    /// CRC32C of its `length` bytes.
    pub crc: u32,
    pub body: Body,
    pub cut: Option<Cut>,
    /// The segment with the record that finished or sealed it, where that is another than its `Put`.
    pub ended_in: Option<u32>,
}

const FINAL: u8 = 1;
const WHOLE: u8 = 2;
const CUT: u8 = 4;
const CUT_WINDOW: u8 = 8;
const ENDED: u8 = 16;
const PROMISED: u8 = 32;

impl BlockRow {
    /// Nothing written, nothing promised.
    pub(crate) const EMPTY: Self = Self {
        is_final: false,
        epoch: 0,
        promised: 0,
        length: 0,
        crc: 0,
        body: Body::Pieces,
        cut: None,
        ended_in: None,
    };

    pub(crate) fn encode(&self) -> Bytes {
        let mut flags = if self.is_final { FINAL } else { 0 };
        let mut bytes = Vec::with_capacity(40);
        bytes.push(0);
        for field in [self.epoch, self.length, self.crc] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        if let Body::Whole(place) = self.body {
            flags |= WHOLE;
            put_place(&mut bytes, place);
        }
        if let Some(cut) = self.cut {
            flags |= CUT;
            bytes.extend_from_slice(&cut.stored.to_le_bytes());
            if let Some(crc) = cut.last_window {
                flags |= CUT_WINDOW;
                bytes.extend_from_slice(&crc.to_le_bytes());
            }
        }
        if let Some(segment) = self.ended_in {
            flags |= ENDED;
            bytes.extend_from_slice(&segment.to_le_bytes());
        }
        if self.promised > self.epoch {
            flags |= PROMISED;
            bytes.extend_from_slice(&self.promised.to_le_bytes());
        }
        bytes[0] = flags;
        bytes.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let (epoch, length, crc) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let body = if flags & WHOLE != 0 { Body::Whole(fields.place()?) } else { Body::Pieces };
        let cut = match flags & CUT {
            0 => None,
            _ => {
                let stored = fields.u32()?;
                let last_window = if flags & CUT_WINDOW != 0 { Some(fields.u32()?) } else { None };
                Some(Cut { stored, last_window })
            }
        };
        let ended_in = if flags & ENDED != 0 { Some(fields.u32()?) } else { None };
        let promised = if flags & PROMISED != 0 { fields.u32()? } else { epoch };
        fields.end()?;
        Some(Self { is_final: flags & FINAL != 0, epoch, promised, length, crc, body, cut, ended_in })
    }

    /// Bytes of payload that lie on disk for a block in one record.
    pub(crate) fn stored(&self) -> u32 {
        self.cut.map_or(self.length, |cut| cut.stored)
    }
}

/// A chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PieceRow {
    pub place: Place,
    /// Bytes of its payload on disk.
    pub length: u32,
    /// CRC32C of the block up to its end.
    pub block_crc: u32,
}

impl PieceRow {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(16);
        put_place(&mut bytes, self.place);
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.block_crc.to_le_bytes());
        bytes.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let row = Self { place: fields.place()?, length: fields.u32()?, block_crc: fields.u32()? };
        fields.end()?;
        Some(row)
    }
}

/// How far a segment is in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SegmentRow {
    /// Records before this are durable in the segment and applied here.
    pub synced: u64,
    /// Records before this are applied here; those from `synced` on may be lost by a power failure.
    pub applied: u64,
    /// Bytes of records that still matter.
    pub live: u64,
}

impl SegmentRow {
    pub(crate) fn encode(&self) -> Bytes {
        let fields = [self.synced, self.applied, self.live];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let row = Self { synced: fields.u64()?, applied: fields.u64()?, live: fields.u64()? };
        fields.end()?;
        Some(row)
    }
}

/// Totals of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CountsRow {
    /// Bytes of blocks.
    pub used: u64,
    /// Blocks.
    pub blocks: u64,
    /// The highest delete transaction carried out.
    pub delete_sequence: u64,
    /// Digest of blocks and tombstones; kept once the replica is closed.
    pub digest: Option<[u8; 32]>,
}

impl CountsRow {
    pub(crate) fn encode(&self) -> Bytes {
        let fields = [self.used, self.blocks, self.delete_sequence];
        let mut bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        bytes.extend_from_slice(self.digest.as_ref().map_or(&[], |digest| &digest[..]));
        bytes.into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (used, blocks, delete_sequence) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let digest = match fields.0 {
            [] => None,
            rest => Some(rest.try_into().ok()?),
        };
        Some(Self { used, blocks, delete_sequence, digest })
    }
}

fn put_place(bytes: &mut Vec<u8>, place: Place) {
    debug_assert!(place.position < SEGMENT_BYTES_MAX);
    bytes.extend_from_slice(&place.segment.to_le_bytes());
    bytes.extend_from_slice(&((place.position / RECORD_ALIGN) as u32).to_le_bytes());
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }
    fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }
    fn place(&mut self) -> Option<Place> {
        Some(Place { segment: self.u32()?, position: u64::from(self.u32()?) * RECORD_ALIGN })
    }
    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Key of a block's row.
pub(crate) fn block_key(block: BlockId) -> [u8; 8] {
    block.get().to_be_bytes()
}

/// The block of a key that begins with one.
pub(crate) fn block_of(key: &[u8]) -> Option<BlockId> {
    BlockId::new(u64::from_be_bytes(*key.first_chunk()?))
}

/// Key of a piece.
pub(crate) fn piece_key(block: BlockId, offset: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&block_key(block));
    key[8..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// The offset in the key of a piece.
pub(crate) fn piece_offset(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(8..12)?.try_into().ok()?))
}

/// First and first-after keys of the rows of `count` blocks from `first` on, in tables that are led by block ids.
pub(crate) fn block_span(first: BlockId, count: u32) -> ([u8; 8], [u8; 8]) {
    (block_key(first), (first.get() + u64::from(count)).to_be_bytes())
}

/// First and first-after keys of a container's rows, in tables that are led by block ids.
pub(crate) fn container_span(container: ContainerId) -> ([u8; 8], [u8; 8]) {
    let first = container.get() << ozone_common::id::LOCAL_BITS;
    (first.to_be_bytes(), (first + (1 << ozone_common::id::LOCAL_BITS)).to_be_bytes())
}

/// Key of a container's counts.
pub(crate) fn container_key(container: ContainerId) -> [u8; 8] {
    container.get().to_be_bytes()
}

/// Key of a segment.
pub(crate) fn segment_key(container: ContainerId, segment: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&container_key(container));
    key[8..].copy_from_slice(&segment.to_be_bytes());
    key
}

/// Key of a hole.
pub(crate) fn hole_key(container: ContainerId, segment: u32, start: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..12].copy_from_slice(&segment_key(container, segment));
    key[12..].copy_from_slice(&start.to_be_bytes());
    key
}

/// Container, segment and start of a hole's key.
pub(crate) fn hole_of(key: &[u8]) -> Option<(ContainerId, u32, u64)> {
    let (container, rest) = key.split_first_chunk::<8>()?;
    let (segment, start) = rest.split_first_chunk::<4>()?;
    Some((
        ContainerId::new(u64::from_be_bytes(*container))?,
        u32::from_be_bytes(*segment),
        u64::from_be_bytes(start.try_into().ok()?),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places() -> impl Strategy<Value = Place> {
        (any::<u32>(), any::<u32>())
            .prop_map(|(segment, units)| Place { segment, position: u64::from(units) * RECORD_ALIGN })
    }

    fn rows() -> impl Strategy<Value = BlockRow> {
        let cut = proptest::option::of((any::<u32>(), proptest::option::of(any::<u32>())));
        let numbers = (any::<u32>(), 0..3u32, any::<u32>(), any::<u32>());
        let ended = proptest::option::of(any::<u32>());
        (any::<bool>(), numbers, proptest::option::of(places()), cut, ended).prop_map(
            |(is_final, (epoch, more, length, crc), place, cut, ended_in)| BlockRow {
                is_final,
                epoch,
                promised: epoch.saturating_add(more),
                length,
                crc,
                body: place.map_or(Body::Pieces, Body::Whole),
                cut: cut.map(|(stored, last_window)| Cut { stored, last_window }),
                ended_in,
            },
        )
    }

    proptest! {
        #[test]
        fn round_trip(row in rows(), place in places(), numbers: (u64, u64, u64), digest: Option<[u8; 32]>) {
            prop_assert_eq!(BlockRow::decode(&row.encode()), Some(row));
            let piece = PieceRow { place, length: row.length, block_crc: row.crc };
            prop_assert_eq!(PieceRow::decode(&piece.encode()), Some(piece));
            let segment = SegmentRow { synced: numbers.0, applied: numbers.1, live: numbers.2 };
            prop_assert_eq!(SegmentRow::decode(&segment.encode()), Some(segment));
            let counts = CountsRow { used: numbers.0, blocks: numbers.1, delete_sequence: numbers.2, digest };
            prop_assert_eq!(CountsRow::decode(&counts.encode()), Some(counts));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = (BlockRow::decode(&bytes), PieceRow::decode(&bytes), SegmentRow::decode(&bytes));
            let _ = (CountsRow::decode(&bytes), hole_of(&bytes), block_of(&bytes), piece_offset(&bytes));
        }
    }

    #[test]
    fn keys_keep_containers_together() {
        let container = ContainerId::new(5).unwrap();
        let (start, end) = container_span(container);
        for local in [0, 1, ozone_common::id::LOCAL_MAX] {
            let block = container.block(local).unwrap();
            assert!(block_key(block)[..] >= start[..] && piece_key(block, u32::MAX)[..] < end[..]);
            assert_eq!(block_of(&piece_key(block, 9)), Some(block));
            assert_eq!(piece_offset(&piece_key(block, 9)), Some(9));
        }
        assert_eq!(hole_of(&hole_key(container, 3, 4096)), Some((container, 3, 4096)));
    }

    #[test]
    fn a_small_block_has_a_small_row() {
        let place = Place { segment: 1, position: 8 };
        let row = BlockRow {
            is_final: true,
            epoch: 1,
            promised: 1,
            length: 4096,
            crc: 5,
            body: Body::Whole(place),
            cut: None,
            ended_in: None,
        };
        assert_eq!(row.encode().len(), 21);
    }
}
