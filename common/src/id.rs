//! Identifiers. Each is a type of its own, so that no two can be swapped by mistake.

use std::fmt;
use std::str::FromStr;

use crate::env::Rng;
use crate::{Error, ErrorCode};

/// Number of bits of a block id that number the block inside its container.
pub const LOCAL_BITS: u32 = 24;
/// Number of bits of a container id. The top bit of a block id stays 0: HDFS takes negative ids for striped blocks.
pub const CONTAINER_BITS: u32 = 39;
/// The highest local number of a block.
pub const LOCAL_MAX: u32 = (1 << LOCAL_BITS) - 1;

/// A container: the unit of replication. 39 bits, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(u64);

impl ContainerId {
    /// Takes a number; `None` where it is 0 or has more than 39 bits.
    pub const fn new(id: u64) -> Option<Self> {
        if id == 0 || id >> CONTAINER_BITS != 0 { None } else { Some(Self(id)) }
    }
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The block `local` of this container; `None` where `local` has more than 24 bits.
    pub const fn block(self, local: u32) -> Option<BlockId> {
        if local > LOCAL_MAX { None } else { Some(BlockId(self.0 << LOCAL_BITS | local as u64)) }
    }
}

/// A block: part of a key inside one container. `0 ‖ container (39 bits) ‖ local (24 bits)`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u64);

impl BlockId {
    /// Takes a number; `None` where its container is not a valid one.
    pub const fn new(id: u64) -> Option<Self> {
        match ContainerId::new(id >> LOCAL_BITS) {
            Some(_) => Some(Self(id)),
            None => None,
        }
    }
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The container it lies in.
    pub const fn container(self) -> ContainerId {
        ContainerId(self.0 >> LOCAL_BITS)
    }
    /// Its number inside the container.
    pub const fn local(self) -> u32 {
        (self.0 & LOCAL_MAX as u64) as u32
    }
}

macro_rules! number_display {
    ($($t:ident),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({})"), self)
            }
        }
    )*};
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container(), self.local())
    }
}
impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockId({self})")
    }
}

macro_rules! u64_id {
    ($($(#[$doc:meta])* $t:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $t(pub u64);
        impl $t {
            /// The number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }
    )*};
}

u64_id!(
    /// A bucket's number; the leading part of every row below it. The top 16 bits name its shard (0 today).
    BucketId,
    /// A block grant.
    GrantId,
    /// A version of a key: grows with every change of the bucket's shard, never reused.
    Generation
);
number_display!(ContainerId, BucketId, GrantId, Generation);

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $t:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $t([u8; 16]);
        impl $t {
            /// Takes 16 bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
            /// Takes bytes from the wire; an error names the type and the length found.
            pub fn from_slice(bytes: &[u8]) -> Result<Self, Error> {
                bytes.try_into().map(Self).map_err(|_| {
                    Error::new(ErrorCode::InvalidArgument, format!("{} of {} bytes; 16 are needed", stringify!($t), bytes.len()))
                })
            }
            /// Draws a new one (UUID version 4).
            pub fn random(rng: &dyn Rng) -> Self {
                let mut bytes = [0; 16];
                rng.fill(&mut bytes);
                bytes[6] = bytes[6] & 0x0f | 0x40;
                bytes[8] = bytes[8] & 0x3f | 0x80;
                Self(bytes)
            }
            /// The bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (i, byte) in self.0.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        f.write_str("-")?;
                    }
                    write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({})"), self)
            }
        }
        impl FromStr for $t {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                let digits: String = text.chars().filter(|c| *c != '-').collect();
                let bytes = hex::decode(&digits).map_err(|_| {
                    Error::new(ErrorCode::InvalidArgument, format!("`{text}` is no {}: 32 hexadecimal digits are needed", stringify!($t)))
                })?;
                Self::from_slice(&bytes)
            }
        }
    )*};
}

uuid_id!(
    /// A cluster: roles of different clusters refuse each other.
    ClusterId,
    /// A datanode, kept in its data folder.
    DatanodeId,
    /// A disk volume of a datanode, kept on that disk.
    DiskVolumeId,
    /// One incarnation of a client process: with a sequence number it names a call for ever.
    ClientId
);

impl ClientId {
    /// Makes one that carries the time of its birth (UUID version 7), by which an expired session is told from a new one.
    pub fn fresh(now_ms: u64, rng: &dyn Rng) -> Self {
        let Self(mut bytes) = Self::random(rng);
        bytes[..6].copy_from_slice(&now_ms.to_be_bytes()[2..]);
        bytes[6] = bytes[6] & 0x0f | 0x70;
        Self(bytes)
    }

    /// When it was made by its maker's clock, UTC milliseconds; `None` where it does not carry that.
    pub fn born_ms(&self) -> Option<u64> {
        let mut time = [0; 8];
        time[2..].copy_from_slice(&self.0[..6]);
        (self.0[6] >> 4 == 7).then(|| u64::from_be_bytes(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_ids_hold_their_parts_and_refuse_what_does_not_fit() {
        let container = ContainerId::new((1 << CONTAINER_BITS) - 1).unwrap();
        let block = container.block(LOCAL_MAX).unwrap();
        assert_eq!((block.container(), block.local()), (container, LOCAL_MAX));
        assert!((block.get() as i64) > 0);
        assert_eq!(BlockId::new(block.get()), Some(block));
        assert_eq!(ContainerId::new(0), None);
        assert_eq!(ContainerId::new(1 << CONTAINER_BITS), None);
        assert_eq!(container.block(LOCAL_MAX + 1), None);
        assert_eq!(BlockId::new(5), None, "container 0");
        assert_eq!(BlockId::new(u64::MAX), None);
    }

    #[test]
    fn fresh_client_ids_carry_their_birth() {
        let rng = crate::env::SeededRng::new(1);
        let (one, other) = (ClientId::fresh(1_700_000_000_123, &rng), ClientId::fresh(1_700_000_000_123, &rng));
        assert_eq!(one.born_ms(), Some(1_700_000_000_123));
        assert_ne!(one, other);
        assert_eq!(ClientId::random(&rng).born_ms(), None);
    }

    #[test]
    fn uuids_print_and_parse() {
        let id = DatanodeId::from_bytes([0xab; 16]);
        assert_eq!(id.to_string(), "abababab-abab-abab-abab-abababababab");
        assert_eq!(id.to_string().parse::<DatanodeId>().unwrap(), id);
        assert!("xyz".parse::<DatanodeId>().unwrap_err().to_string().contains("32 hexadecimal digits"));
        assert!("abab".parse::<DatanodeId>().is_err());
    }
}
