//! Finding the records of a segment file, whatever a crash or a bad disk made of it.
//!
//! Two kinds of bad bytes are told apart by [`Header::durable_to`]: what lies below the `durable_to` of any record was synced once,
//! so it is *damage*, and the records behind it count; what does not is a *torn tail*, never promised to anyone, and is cut off with all behind it.
//! Payload is verified only from the last `durable_to` on, since only there a write may have been torn.

use std::io;

use ozone_common::env::DiskFile;
use ozone_common::id::{BlockId, ContainerId};

use crate::block::record::{HEADER_BYTES, Header, Kind, RECORD_ALIGN, SEGMENT_HEAD_BYTES, SegmentHead, WORDS_MAX};

/// What is read of a file at a time.
const READ_BYTES: usize = 64 << 10;
const RECORD_HEAD_MAX: usize = HEADER_BYTES + 4 * WORDS_MAX;

const _: () = assert!(RECORD_HEAD_MAX <= READ_BYTES);

/// What a segment holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// From where the scan began, in order.
    pub records: Vec<Header>,
    /// Where the last good record ends: what follows is cut off.
    pub valid_end: u64,
    /// Bytes of the file as it was found.
    pub length: u64,
    /// The last record says that nothing follows.
    pub ended: bool,
    /// What was found damaged, for people.
    pub damage: Vec<String>,
}

/// Which segment a file should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub container: ContainerId,
    pub segment: u32,
    pub paged: bool,
}

/// Scans a segment from `from` on, which is 0 or where a record begins. `is_dead` tells blocks whose pages may have been given back.
///
/// # Errors
/// Where the file cannot be read, or `is_dead` fails.
pub(crate) fn scan<E: From<io::Error>>(
    file: &dyn DiskFile,
    expected: Expected,
    from: u64,
    mut is_dead: impl FnMut(BlockId) -> Result<bool, E>,
) -> Result<Scan, E> {
    let length = file.len()?;
    let mut window = Window { file, bytes: Vec::new(), start: 0, length };
    let mut scan = Scan { length, ..Scan::default() };
    let from = from.max(SEGMENT_HEAD_BYTES);
    if let Some(what) = check_head(&mut window, expected)? {
        scan.damage.push(what);
    }
    // Where bad bytes begin, and how many records are before them.
    let mut breaks = Vec::new();
    let mut at = from;
    while at < length {
        match window.record(expected, at)? {
            Some(header) => {
                at = header.end();
                scan.records.push(header);
            }
            None => {
                breaks.push((at, scan.records.len()));
                match window.find(expected, at + RECORD_ALIGN)? {
                    Some(found) => at = found,
                    None => break,
                }
            }
        }
    }
    let durable = scan.records.iter().map(|header| header.durable_to).max().unwrap_or(0);
    for (position, before) in breaks {
        if position < durable {
            scan.damage.push(format!("bytes from {position} on of segment {} are no record", expected.segment));
        } else {
            scan.records.truncate(before);
            break;
        }
    }
    if let Some(torn) = first_torn(&mut window, &scan.records, durable, &mut is_dead)? {
        scan.records.truncate(torn);
    }
    scan.valid_end = scan.records.last().map_or(from.min(length.next_multiple_of(RECORD_ALIGN)), Header::end);
    scan.ended = scan.records.last().is_some_and(|header| header.kind == Kind::End);
    if scan.records.is_empty() && from == SEGMENT_HEAD_BYTES {
        // Nothing was ever promised of it.
        scan.damage.clear();
    }
    Ok(scan)
}

fn check_head(window: &mut Window<'_>, expected: Expected) -> io::Result<Option<String>> {
    let right = SegmentHead { container: expected.container, segment: expected.segment, paged: expected.paged };
    let found = window.bytes(0, SEGMENT_HEAD_BYTES as usize)?.and_then(SegmentHead::decode);
    Ok((found != Some(right)).then(|| format!("segment {} does not begin as it should", expected.segment)))
}

/// The first record from `durable` on whose payload is not what it says.
fn first_torn<E: From<io::Error>>(
    window: &mut Window<'_>,
    records: &[Header],
    durable: u64,
    is_dead: &mut impl FnMut(BlockId) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    for (index, header) in records.iter().enumerate() {
        if header.position < durable || !header.kind.has_payload() {
            continue;
        }
        let mut payload = vec![0; header.payload_bytes() as usize];
        window.file.read_exact_at(&mut payload, header.payload_start())?;
        if !header.payload_matches(&payload) && !is_dead(header.block)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Whether the record that ends at `length` ends the segment.
pub(crate) fn is_ended(file: &dyn DiskFile, expected: Expected, length: u64) -> io::Result<bool> {
    let Some(at) = length.checked_sub(HEADER_BYTES as u64).filter(|at| *at >= SEGMENT_HEAD_BYTES) else {
        return Ok(false);
    };
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, at)?;
    let header = Header::decode(&bytes, expected.container, expected.segment, at);
    Ok(header.is_some_and(|header| header.kind == Kind::End))
}

/// A stretch of the file in memory.
struct Window<'a> {
    file: &'a dyn DiskFile,
    bytes: Vec<u8>,
    start: u64,
    length: u64,
}

impl Window<'_> {
    /// `count` bytes from `at` on, fewer at the end of the file; `None` where it ends before.
    fn bytes(&mut self, at: u64, count: usize) -> io::Result<Option<&[u8]>> {
        let count = count.min(self.length.saturating_sub(at) as usize);
        if count == 0 {
            return Ok(None);
        }
        let held = |window: &Self| at >= window.start && at + count as u64 <= window.start + window.bytes.len() as u64;
        if !held(self) {
            let wanted = READ_BYTES.min((self.length - at) as usize);
            self.bytes.resize(wanted, 0);
            self.file.read_exact_at(&mut self.bytes, at)?;
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(self.bytes.get(from..from + count))
    }

    /// The record at `at`, with its payload within the file.
    fn record(&mut self, expected: Expected, at: u64) -> io::Result<Option<Header>> {
        let length = self.length;
        let Some(bytes) = self.bytes(at, RECORD_HEAD_MAX)? else { return Ok(None) };
        let header = Header::decode(bytes, expected.container, expected.segment, at);
        Ok(header.filter(|header| header.payload_start() + header.payload_bytes() <= length))
    }

    /// The first record from `at` on.
    fn find(&mut self, expected: Expected, mut at: u64) -> io::Result<Option<u64>> {
        while at < self.length {
            let maybe = self.bytes(at, HEADER_BYTES)?.is_some_and(|bytes| Header::needed(bytes).is_some());
            if maybe && self.record(expected, at)?.is_some() {
                return Ok(Some(at));
            }
            at += RECORD_ALIGN;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::path::Path;
    use std::sync::Arc;

    use ozone_common::checksum::{crc32c, windows};
    use ozone_common::env::Disk;
    use ozone_common::env::mem_disk::MemDisk;
    use proptest::prelude::*;

    use super::*;

    fn expected() -> Expected {
        Expected { container: ContainerId::new(7).unwrap(), segment: 3, paged: false }
    }

    fn scan_all(file: &Arc<dyn DiskFile>) -> Scan {
        scan::<io::Error>(&**file, expected(), 0, |_| Ok(false)).unwrap()
    }

    /// A segment of `count` puts of 100 bytes, each written when all before it were durable up to `durable_every`.
    fn segment(count: u32, durable_every: u32) -> (MemDisk, Arc<dyn DiskFile>, Vec<Header>) {
        let disk = MemDisk::new();
        let file = disk.open(Path::new("/s"), true).unwrap();
        let head = SegmentHead { container: expected().container, segment: 3, paged: false };
        let mut bytes = head.encode().to_vec();
        let mut headers = Vec::new();
        let mut durable_to = 0;
        for number in 0..count {
            let payload = vec![number as u8; 100];
            let position = (bytes.len() as u64).next_multiple_of(RECORD_ALIGN);
            bytes.resize(position as usize, 0);
            if number % durable_every == 0 {
                durable_to = position;
            }
            let header = Header {
                kind: Kind::Put,
                paged: false,
                epoch: 1,
                block: expected().container.block(number).unwrap(),
                offset: 0,
                length: 100,
                durable_to,
                position,
                segment: 3,
                block_crc: crc32c(&payload),
                words: windows(&payload),
            };
            header.encode(&mut bytes);
            bytes.extend_from_slice(&payload);
            headers.push(header);
        }
        file.write_all_at(&mut [IoSlice::new(&bytes)], 0).unwrap();
        (disk, file, headers)
    }

    #[test]
    fn all_records_of_a_good_segment_are_found_from_any_on() {
        let (_, file, headers) = segment(10, 3);
        let found = scan_all(&file);
        assert_eq!((found.records, found.damage.len()), (headers.clone(), 0));
        assert_eq!(found.valid_end, headers[9].end());
        let tail = scan::<io::Error>(&*file, expected(), headers[6].position, |_| Ok(false)).unwrap();
        assert_eq!(tail.records, headers[6..]);
        let nothing = scan::<io::Error>(&*file, expected(), headers[9].end(), |_| Ok(false)).unwrap();
        assert_eq!((nothing.records.len(), nothing.valid_end), (0, headers[9].end()));
    }

    #[test]
    fn a_tail_cut_anywhere_is_cut_at_a_record() {
        let (_, file, headers) = segment(4, 2);
        for length in (SEGMENT_HEAD_BYTES..=headers[3].end()).rev() {
            file.set_len(length).unwrap();
            let found = scan_all(&file);
            let whole = headers.iter().take_while(|h| h.payload_start() + h.payload_bytes() <= length).count();
            assert_eq!(found.records, headers[..whole], "{length}");
            assert!(found.damage.is_empty());
        }
    }

    #[test]
    fn bad_bytes_are_damage_below_what_was_durable_and_else_a_torn_tail() {
        for number in 0..10u32 {
            for in_payload in [false, true] {
                let (disk, file, headers) = segment(10, 3);
                let header = &headers[number as usize];
                let at = if in_payload { header.payload_start() + 5 } else { header.position + 9 };
                disk.corrupt(Path::new("/s"), at, 4);
                let found = scan_all(&file);
                // Records 0..9 were durable when record 9 was written.
                let durable = number < 9;
                match (durable, in_payload) {
                    // Found by the reader, or a scrub.
                    (true, true) => assert_eq!((found.records.len(), found.damage.len()), (10, 0)),
                    (true, false) => assert_eq!((found.records.len(), found.damage.len()), (9, 1), "{number}"),
                    (false, _) => assert_eq!((found.records.len(), found.damage.len()), (9, 0)),
                }
            }
        }
    }

    #[test]
    fn payload_of_a_dead_block_is_not_looked_at() {
        let (disk, file, headers) = segment(10, 100);
        disk.corrupt(Path::new("/s"), headers[4].payload_start(), 4);
        assert_eq!(scan_all(&file).records.len(), 4);
        let dead = headers[4].block;
        let found = scan::<io::Error>(&*file, expected(), 0, |block| Ok(block == dead)).unwrap();
        assert_eq!(found.records, headers);
    }

    #[test]
    fn an_end_is_seen() {
        let (_, file, headers) = segment(2, 2);
        let end = headers[1].end();
        assert!(!is_ended(&*file, expected(), end).unwrap());
        let end = crate::block::lane::write_end(&*file, expected().container, 3, end).unwrap();
        assert!(is_ended(&*file, expected(), end).unwrap());
        assert!(scan_all(&file).ended);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), at in 0..800usize, keep in 0..900usize) {
            let (_, file, _) = segment(5, 2);
            file.set_len(keep as u64).unwrap();
            file.write_all_at(&mut [IoSlice::new(&bytes)], at as u64).unwrap();
            let found = scan_all(&file);
            prop_assert!(found.valid_end <= found.length.next_multiple_of(RECORD_ALIGN));
            prop_assert!(found.records.windows(2).all(|pair| pair[0].end() <= pair[1].position));
        }
    }
}
