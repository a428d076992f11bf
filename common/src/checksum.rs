//! CRC32C over fixed windows: computed by the writer, stored, returned with reads, verified by the reader.

use crc_fast::CrcAlgorithm;

use crate::limits::BYTES_PER_CHECKSUM;

/// CRC32C (Castagnoli, RFC 3720) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of two stretches put together, from their CRCs and the length of the second.
pub fn crc32c_combine(first: u32, second: u32, second_length: u64) -> u32 {
    crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, u64::from(first), u64::from(second), second_length) as u32
}

/// CRC32C of each window of [`BYTES_PER_CHECKSUM`] bytes; the last may be shorter. Empty for no bytes.
pub fn windows(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(BYTES_PER_CHECKSUM).map(crc32c).collect()
}

/// The first window of `bytes` that is not what `crcs` says, or `crcs.len()` where the counts differ.
pub fn first_mismatch(bytes: &[u8], crcs: &[u32]) -> Option<usize> {
    if bytes.len().div_ceil(BYTES_PER_CHECKSUM) != crcs.len() {
        return Some(crcs.len());
    }
    bytes.chunks(BYTES_PER_CHECKSUM).zip(crcs).position(|(window, crc)| crc32c(window) != *crc)
}

/// CRC32C of `length` bytes from the CRCs of their windows.
pub fn combine_windows(crcs: &[u32], length: u64) -> u32 {
    let mut rest = length;
    crcs.iter().fold(0, |whole, crc| {
        let window = rest.min(BYTES_PER_CHECKSUM as u64);
        rest -= window;
        crc32c_combine(whole, *crc, window)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_windows() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of CRC-32C");
        let bytes: Vec<u8> = (0..BYTES_PER_CHECKSUM * 2 + 5).map(|i| i as u8).collect();
        let mut crcs = windows(&bytes);
        assert_eq!(crcs.len(), 3);
        assert_eq!(first_mismatch(&bytes, &crcs), None);
        assert_eq!(combine_windows(&crcs, bytes.len() as u64), crc32c(&bytes));
        crcs[1] ^= 1;
        assert_eq!(first_mismatch(&bytes, &crcs), Some(1));
        assert_eq!(first_mismatch(&bytes, &crcs[..2]), Some(2));
        assert_eq!(first_mismatch(&[], &[]), None);
        assert_eq!(combine_windows(&[], 0), crc32c(&[]));
    }
}
