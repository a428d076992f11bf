//! The file `replica` in a replica's folder: what must be known of it without its segments.
//!
//! Written whole or not at all: when it is made, when it closes, when damage is found. Between, its segments tell.

use std::io;
use std::path::Path;

use ozone_common::checksum::crc32c;
use ozone_common::env::Disk;
use ozone_common::id::{ContainerId, DatanodeId};
use prost::Message;

const FILE: &str = "replica";
const MAGIC: &[u8; 8] = b"O3REPL\0\x01";

/// What the file says.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Manifest {
    #[prost(fixed64, tag = "1")]
    pub container: u64,
    /// The highest epoch that it was told.
    #[prost(uint32, tag = "2")]
    pub epoch: u32,
    /// Datanodes of the container when it was made, 16 bytes each.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub members: Vec<Vec<u8>>,
    /// It is CLOSED, and these were its segments then.
    #[prost(message, optional, tag = "4")]
    pub closed: Option<Closed>,
    /// Why it is quarantined; empty where it is not.
    #[prost(string, tag = "5")]
    pub unhealthy: String,
}

/// Segments of a replica at its close.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Closed {
    #[prost(message, repeated, tag = "1")]
    pub segments: Vec<ClosedSegment>,
}

/// A segment at the close. Compaction may have replaced it since.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClosedSegment {
    #[prost(uint32, tag = "1")]
    pub number: u32,
    /// Bytes of its file.
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

impl Manifest {
    /// Writes it, durably.
    pub(crate) fn save(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        disk.write_atomic(&dir.join(FILE), &self.bytes())
    }

    fn bytes(&self) -> Vec<u8> {
        let body = self.encode_to_vec();
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads it; `Ok(None)` where there is none.
    ///
    /// # Errors
    /// `InvalidData` where it is not what was written; others where it cannot be read.
    pub(crate) fn load(disk: &dyn Disk, dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(FILE);
        if !disk.exists(&path) {
            return Ok(None);
        }
        let bytes = disk.read(&path)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is damaged", path.display()));
        Self::parse(&bytes).map(Some).ok_or_else(damaged)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let body = bytes.strip_prefix(MAGIC)?;
        let (crc, body) = body.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32c(body) {
            return None;
        }
        Self::decode(body).ok()
    }

    /// Whose it is.
    pub(crate) fn container(&self) -> Option<ContainerId> {
        ContainerId::new(self.container)
    }

    /// Its members; what is no id is left out.
    pub(crate) fn members(&self) -> Vec<DatanodeId> {
        self.members.iter().filter_map(|bytes| DatanodeId::from_slice(bytes).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            container: 7,
            epoch: 2,
            members: vec![vec![1; 16], vec![2; 16]],
            closed: Some(Closed { segments: vec![ClosedSegment { number: 1, length: 4096 }] }),
            unhealthy: "a bad byte".into(),
        }
    }

    #[test]
    fn round_trip_and_every_flipped_bit_is_found() {
        let bytes = manifest().bytes();
        assert_eq!(Manifest::parse(&bytes), Some(manifest()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Manifest::parse(&flipped), None, "bit {bit}");
        }
        assert_eq!(manifest().members().len(), 2);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..100), framed: bool) {
            let mut bytes = body.clone();
            if framed {
                bytes = [&MAGIC[..], &crc32c(&body).to_le_bytes(), &body].concat();
            }
            let _ = Manifest::parse(&bytes).map(|manifest| (manifest.container(), manifest.members()));
        }
    }
}
