//! The five checksums of S3 (User Guide, "Checking object integrity"): names, values, and computing them piece by piece.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use http::HeaderName;
use ozone_client::proto::om::v1 as om;
use ring::digest;
use sha1::Digest as _;

/// A kind of checksum. The numbers are those of the OM's messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(crate) enum Algorithm {
    Crc32 = 1,
    Crc32c = 2,
    Crc64Nvme = 3,
    Sha1 = 4,
    Sha256 = 5,
}

static CRC32: HeaderName = HeaderName::from_static("x-amz-checksum-crc32");
static CRC32C: HeaderName = HeaderName::from_static("x-amz-checksum-crc32c");
static CRC64NVME: HeaderName = HeaderName::from_static("x-amz-checksum-crc64nvme");
static SHA1: HeaderName = HeaderName::from_static("x-amz-checksum-sha1");
static SHA256: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The algorithm of a number in an OM's message; `None` for 0 and for numbers that this build does not know.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| *algorithm as u32 == number)
    }

    /// The algorithm of a name as in `x-amz-sdk-checksum-algorithm`, in whatever case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| name.eq_ignore_ascii_case(algorithm.name().as_bytes()))
    }

    /// The algorithm whose header or trailer has this name, in whatever case.
    pub fn from_header(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| name.eq_ignore_ascii_case(algorithm.header().as_str().as_bytes()))
    }

    /// As S3 names it: `CRC32C`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The element that holds a value of it in documents: `ChecksumCRC32C`.
    pub const fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    /// The header, and trailer, that holds a value of it.
    pub fn header(self) -> &'static HeaderName {
        match self {
            Self::Crc32 => &CRC32,
            Self::Crc32c => &CRC32C,
            Self::Crc64Nvme => &CRC64NVME,
            Self::Sha1 => &SHA1,
            Self::Sha256 => &SHA256,
        }
    }

    /// Bytes of a value.
    pub const fn length(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Whether the checksum of a whole can be computed from those of its parts.
    pub const fn is_crc(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }
}

/// A checksum of some bytes; of bytes as such, never a composite one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checksum {
    algorithm: Algorithm,
    bytes: [u8; 32],
}

impl Checksum {
    /// Takes a value of the algorithm's length.
    pub fn new(algorithm: Algorithm, value: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        bytes.get_mut(..algorithm.length()).filter(|place| place.len() == value.len())?.copy_from_slice(value);
        Some(Self { algorithm, bytes })
    }

    /// Reads base64, as headers and documents hold it. `None` where it is malformed or of another length.
    pub fn from_base64(algorithm: Algorithm, text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 36];
        let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
        Self::new(algorithm, bytes.get(..length)?)
    }

    /// Which kind it is.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The value, most significant byte first.
    pub fn value(&self) -> &[u8] {
        &self.bytes[..self.algorithm.length()]
    }

    /// The value as headers and documents hold it.
    pub fn to_base64(self) -> String {
        STANDARD.encode(self.value())
    }

    /// As the OM keeps it.
    pub fn to_om(self) -> om::Checksum {
        let value = bytes::Bytes::copy_from_slice(self.value());
        om::Checksum { algorithm: self.algorithm as u32, value, composite: false, parts: 0 }
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.to_base64())
    }
}

/// Computes one checksum over bytes that come in pieces.
pub(crate) enum Hasher {
    Crc(Algorithm, crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(digest::Context),
}

impl Hasher {
    /// Begins.
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Crc32 => Self::Crc(algorithm, crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
            Algorithm::Crc32c => Self::Crc(algorithm, crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Crc64Nvme => Self::Crc(algorithm, crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)),
            Algorithm::Sha1 => Self::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(digest::Context::new(&digest::SHA256)),
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
        }
    }

    /// The checksum of all that came.
    pub fn finish(self) -> Checksum {
        let mut bytes = [0; 32];
        let algorithm = match self {
            Self::Crc(algorithm, digest) => {
                let value = digest.finalize().to_be_bytes();
                let length = algorithm.length();
                bytes[..length].copy_from_slice(&value[value.len() - length..]);
                algorithm
            }
            Self::Sha1(hash) => {
                bytes[..20].copy_from_slice(&hash.finalize());
                Algorithm::Sha1
            }
            Self::Sha256(hash) => {
                bytes.copy_from_slice(hash.finish().as_ref());
                Algorithm::Sha256
            }
        };
        Checksum { algorithm, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Check values of the catalogue of CRCs, and FIPS 180's of "abc".
        for (algorithm, bytes, expected) in [
            (Algorithm::Crc32, "123456789", "cbf43926"),
            (Algorithm::Crc32c, "123456789", "e3069283"),
            (Algorithm::Crc64Nvme, "123456789", "ae8b14860a799888"),
            (Algorithm::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (Algorithm::Sha256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            for split in 0..bytes.len() {
                let mut hasher = Hasher::new(algorithm);
                hasher.update(&bytes.as_bytes()[..split]);
                hasher.update(&bytes.as_bytes()[split..]);
                assert_eq!(hex::encode(hasher.finish().value()), expected, "{algorithm:?}");
            }
        }
    }

    #[test]
    fn names_numbers_and_texts_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_number(algorithm as u32), Some(algorithm));
            assert_eq!(Algorithm::from_name(algorithm.name().to_lowercase().as_bytes()), Some(algorithm));
            assert_eq!(Algorithm::from_header(algorithm.header().as_str().to_uppercase().as_bytes()), Some(algorithm));
            assert_eq!(algorithm.element(), format!("Checksum{}", algorithm.name()));
            let sum = Hasher::new(algorithm).finish();
            assert_eq!(Checksum::from_base64(algorithm, sum.to_base64().as_bytes()), Some(sum));
            for wrong in ["", "a", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "====", "Zz-_AA=="] {
                assert_eq!(Checksum::from_base64(algorithm, wrong.as_bytes()), None, "{wrong}");
            }
        }
        assert_eq!(Algorithm::from_number(0), None);
        assert_eq!(Algorithm::from_number(6), None);
    }
}
