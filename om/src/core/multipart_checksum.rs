//! Checksums and etags of objects made of parts (S3 User Guide, "Checking object integrity").
//!
//! A composite checksum is the checksum of the parts' checksums, one after another. A full-object checksum is that of the bytes; CRCs
//! of parts combine to it without reading a byte, hashes do not.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use md5::{Digest, Md5};

use crate::tables::key::ChecksumRow;

/// What a checksum's number on the wire means.
#[derive(Clone, Copy)]
enum Algorithm {
    Crc32(CrcAlgorithm),
    Crc64(CrcAlgorithm),
    Hash(&'static ring::digest::Algorithm),
}

fn algorithm(number: u32) -> Option<Algorithm> {
    Some(match number {
        1 => Algorithm::Crc32(CrcAlgorithm::Crc32IsoHdlc),
        2 => Algorithm::Crc32(CrcAlgorithm::Crc32Iscsi),
        3 => Algorithm::Crc64(CrcAlgorithm::Crc64Nvme),
        4 => Algorithm::Hash(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY),
        5 => Algorithm::Hash(&ring::digest::SHA256),
        _ => return None,
    })
}

/// How many bytes a checksum of this number has; `None` where the number is not known.
pub fn value_length(number: u32) -> Option<usize> {
    Some(match algorithm(number)? {
        Algorithm::Crc32(_) => 4,
        Algorithm::Crc64(_) => 8,
        Algorithm::Hash(hash) => hash.output_len(),
    })
}

/// The checksum of an object made of parts of these lengths and checksums. `None` where it cannot be had: a part has none or one
/// of another algorithm, or the whole is asked for of a hash.
pub fn whole<'a>(
    number: u32,
    composite: bool,
    parts: impl ExactSizeIterator<Item = (u64, Option<&'a ChecksumRow>)>,
) -> Option<ChecksumRow> {
    let algorithm = algorithm(number)?;
    let count = parts.len() as u32;
    let mut joined = Vec::new();
    let mut combined = None;
    for (length, sum) in parts {
        let sum = sum.filter(|sum| sum.algorithm == number && Some(sum.value.len()) == value_length(number))?;
        if composite {
            joined.extend_from_slice(&sum.value);
            continue;
        }
        let crc = sum.value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (Algorithm::Crc32(kind) | Algorithm::Crc64(kind)) = algorithm else { return None };
        combined = Some(match combined {
            None => crc,
            Some(before) => crc_fast::checksum_combine(kind, before, crc, length),
        });
    }
    let number_bytes = |algorithm, value: u64| match algorithm {
        Algorithm::Crc32(_) => (value as u32).to_be_bytes().to_vec(),
        _ => value.to_be_bytes().to_vec(),
    };
    let value = match (composite, algorithm) {
        (true, Algorithm::Crc32(kind) | Algorithm::Crc64(kind)) => {
            number_bytes(algorithm, crc_fast::checksum(kind, &joined))
        }
        (true, Algorithm::Hash(hash)) => ring::digest::digest(hash, &joined).as_ref().to_vec(),
        (false, _) => number_bytes(algorithm, combined?),
    };
    Some(ChecksumRow { algorithm: number, value: value.into(), composite, parts: if composite { count } else { 0 } })
}

/// MD5 of the parts' MD5s; `None` where a part has none.
pub fn etag<'a>(parts: impl Iterator<Item = &'a Bytes>) -> Option<Bytes> {
    let mut hash = Md5::new();
    for md5 in parts {
        if md5.len() != 16 {
            return None;
        }
        hash.update(md5);
    }
    Some(Bytes::copy_from_slice(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(number: u32, bytes: &[u8]) -> ChecksumRow {
        let value = match algorithm(number).unwrap() {
            Algorithm::Crc32(kind) => (crc_fast::checksum(kind, bytes) as u32).to_be_bytes().to_vec(),
            Algorithm::Crc64(kind) => crc_fast::checksum(kind, bytes).to_be_bytes().to_vec(),
            Algorithm::Hash(hash) => ring::digest::digest(hash, bytes).as_ref().to_vec(),
        };
        ChecksumRow { algorithm: number, value: value.into(), composite: false, parts: 0 }
    }

    #[test]
    fn full_object_checksums_are_those_of_the_bytes_and_composite_ones_of_the_checksums() {
        let texts: [&[u8]; 3] = [b"first part", b"", b"and the rest"];
        for number in 1..=5 {
            let sums: Vec<ChecksumRow> = texts.iter().map(|text| sum(number, text)).collect();
            let parts = || texts.iter().zip(&sums).map(|(text, sum)| (text.len() as u64, Some(sum)));
            let full = whole(number, false, parts());
            if number <= 3 {
                assert_eq!(full.unwrap().value, sum(number, &texts.concat()).value, "algorithm {number}");
            } else {
                assert_eq!(full, None, "hashes do not combine");
            }
            let joined: Vec<u8> = sums.iter().flat_map(|sum| sum.value.to_vec()).collect();
            let composite = whole(number, true, parts()).unwrap();
            assert_eq!((composite.value, composite.parts), (sum(number, &joined).value, 3));
            assert_eq!(whole(number, true, [(1, None)].into_iter()), None);
            let other = sum(number % 5 + 1, b"x");
            assert_eq!(whole(number, true, [(1, Some(&other))].into_iter()), None);
        }
        assert_eq!(whole(9, true, [(1, None)].into_iter()), None);
    }

    #[test]
    fn etag_is_the_md5_of_the_md5s() {
        let part = |text: &str| Bytes::copy_from_slice(&Md5::digest(text));
        let parts = [part("a"), part("b")];
        assert_eq!(
            etag(parts.iter()).unwrap(),
            Bytes::copy_from_slice(&Md5::digest([parts[0].as_ref(), parts[1].as_ref()].concat()))
        );
        assert_eq!(etag([Bytes::new()].iter()), None);
    }
}
