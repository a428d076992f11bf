//! CRC32C over fixed windows: computed by the writer, stored, returned with reads, verified by the reader.

use crc_fast::CrcAlgorithm;

use crate::limits::BYTES_PER_CHECKSUM;

/// CRC32C (Castagnoli, RFC 3720) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC32C of two stretches put together, from their CRCs and the length of the second.
///
/// The first is multiplied by x^(8 · length), as if as many zero bytes followed it, and the second added. (The library's own
/// function squares matrices for that: 20 µs, a hundred times as much.)
pub const fn crc32c_combine(first: u32, second: u32, second_length: u64) -> u32 {
    multiply(first, shift(second_length)) ^ second
}

/// The polynomial, reflected: bit 31 is the coefficient of x^0.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x^0.
const ONE: u32 = 1 << 31;

/// Product of two polynomials modulo [`POLYNOMIAL`].
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut b, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        // Masks in place of branches: the bits are random.
        product ^= b & 0_u32.wrapping_sub(a >> bit & 1);
        b = b >> 1 ^ POLYNOMIAL & 0_u32.wrapping_sub(b & 1);
    }
    product
}

/// x^(8 · 2^k) by k.
const POWERS: [u32; 64] = {
    let mut powers = [ONE >> 8; 64];
    let mut k = 1;
    while k < 64 {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// x^(8 · length).
const fn shift(length: u64) -> u32 {
    let (mut power, mut rest) = (ONE, length);
    while rest > 0 {
        power = multiply(power, POWERS[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    power
}

/// What a whole window shifts by.
const WINDOW_SHIFT: u32 = shift(BYTES_PER_CHECKSUM as u64);

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
        let by = if window == BYTES_PER_CHECKSUM as u64 { WINDOW_SHIFT } else { shift(window) };
        multiply(whole, by) ^ crc
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn combining_is_computing_over_both(bytes in prop::collection::vec(any::<u8>(), 0..3000), at in 0..3000_usize) {
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(crc32c_combine(crc32c(first), crc32c(second), second.len() as u64), crc32c(&bytes));
        }

        /// Against the library's own, for lengths that no test would compute over.
        #[test]
        fn any_length_shifts_right(first: u32, second: u32, length in prop_oneof![0..1_u64 << 20, 0..u64::MAX >> 4]) {
            let theirs = crc_fast::checksum_combine(CrcAlgorithm::Crc32Iscsi, u64::from(first), u64::from(second), length);
            prop_assert_eq!(u64::from(crc32c_combine(first, second, length)), theirs);
        }
    }

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
