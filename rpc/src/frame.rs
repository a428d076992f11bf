//! Frames of the block transport: a fixed prefix, a protobuf header, raw payload (docs/formats/data-frame.md).
//!
//! The prefix's checksum covers prefix and header; the payload is covered by the window checksums that the header
//! carries. Lengths are bounded before anything is allocated, so junk costs nothing but its connection.

use bytes::{BufMut, Bytes, BytesMut};
use ozone_common::limits::{FRAME_HEADER_MAX, FRAME_PAYLOAD_MAX};
use ozone_common::{Error, ErrorCode};
use prost::Message;

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"O3DF";
/// Version of the layout.
pub const VERSION: u8 = 1;
/// Bytes before the header.
pub const PREFIX_LENGTH: usize = 28;
const CRC_AT: usize = 24;

/// What a frame carries in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// `Hello`: first frame of each direction.
    Hello = 1,
    /// `Request`.
    Request = 2,
    /// `Response`.
    Response = 3,
}

/// The last frame of a call in its direction.
const FLAG_LAST: u16 = 1;

/// The fixed part of a frame, checked for bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// What the header is.
    pub kind: Kind,
    /// Whether this is the last frame of its call in this direction.
    pub last: bool,
    /// Bytes of the header.
    pub header_length: usize,
    /// Bytes of the payload.
    pub payload_length: usize,
    /// Number of the call on its connection; 0 in greetings.
    pub call: u64,
}

/// Why bytes are no frame; the connection ends with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// Not our protocol.
    #[error("the peer does not speak the block transport (a frame begins with {0:02x?})")]
    Magic([u8; 4]),
    /// A later or earlier layout.
    #[error("frame layout version {0} is not known; this build speaks {VERSION}")]
    Version(u8),
    /// An unknown kind or flag.
    #[error("frame kind {kind} with flags {flags:#06x} is not known")]
    Kind {
        /// As received.
        kind: u8,
        /// As received.
        flags: u16,
    },
    /// Beyond a limit.
    #[error(
        "a frame with a header of {header} and a payload of {payload} bytes is beyond the limits {FRAME_HEADER_MAX} and {FRAME_PAYLOAD_MAX}"
    )]
    TooLarge {
        /// Bytes.
        header: u64,
        /// Bytes.
        payload: u64,
    },
    /// Damaged on the way.
    #[error("a frame's checksum is {found:#010x}, its bytes have {computed:#010x}")]
    Checksum {
        /// As received.
        found: u32,
        /// As it should be.
        computed: u32,
    },
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        // The peer may have carried out what the damaged frame answered.
        Error::new(ErrorCode::Unavailable, error.to_string())
    }
}

impl Prefix {
    /// Reads a prefix.
    ///
    /// # Errors
    /// All of [`FrameError`] but `Checksum`, which needs the header: [`Prefix::check`].
    pub fn decode(bytes: &[u8; PREFIX_LENGTH]) -> Result<Self, FrameError> {
        let [m0, m1, m2, m3, version, kind, f0, f1, h0, h1, h2, h3, p0, p1, p2, p3, c0, c1, c2, c3, c4, c5, c6, c7, ..] =
            *bytes;
        let magic = [m0, m1, m2, m3];
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        let flags = u16::from_be_bytes([f0, f1]);
        let known = match kind {
            1 => Some(Kind::Hello),
            2 => Some(Kind::Request),
            3 => Some(Kind::Response),
            _ => None,
        };
        let Some(kind) = known.filter(|_| flags & !FLAG_LAST == 0) else {
            return Err(FrameError::Kind { kind, flags });
        };
        let header = u64::from(u32::from_be_bytes([h0, h1, h2, h3]));
        let payload = u64::from(u32::from_be_bytes([p0, p1, p2, p3]));
        if header > FRAME_HEADER_MAX as u64 || payload > FRAME_PAYLOAD_MAX as u64 {
            return Err(FrameError::TooLarge { header, payload });
        }
        Ok(Self {
            kind,
            last: flags & FLAG_LAST != 0,
            header_length: header as usize,
            payload_length: payload as usize,
            call: u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        })
    }

    /// Checks the checksum of a prefix, as received, and its header.
    ///
    /// # Errors
    /// `Checksum`.
    pub fn check(bytes: &[u8; PREFIX_LENGTH], header: &[u8]) -> Result<(), FrameError> {
        let [.., a, b, c, d] = *bytes;
        let found = u32::from_be_bytes([a, b, c, d]);
        let computed = checksum(&bytes[..CRC_AT], header);
        if found == computed { Ok(()) } else { Err(FrameError::Checksum { found, computed }) }
    }
}

fn checksum(prefix: &[u8], header: &[u8]) -> u32 {
    use crc_fast::{CrcAlgorithm, Digest};
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(prefix);
    digest.update(header);
    digest.finalize() as u32
}

/// Writes the right checksum into the frame at the start of `bytes`, where there is one with its header; gives the frame's length.
#[cfg(test)]
pub(crate) fn repair(bytes: &mut [u8]) -> Option<usize> {
    let prefix = Prefix::decode(bytes.first_chunk()?).ok()?;
    let crc = checksum(&bytes[..CRC_AT], bytes.get(PREFIX_LENGTH..)?.get(..prefix.header_length)?);
    bytes[CRC_AT..PREFIX_LENGTH].copy_from_slice(&crc.to_be_bytes());
    let length = PREFIX_LENGTH + prefix.header_length + prefix.payload_length;
    (length <= bytes.len()).then_some(length)
}

/// Encodes prefix and header of a frame whose payload has `payload_length` bytes; the payload follows as it is.
///
/// # Errors
/// `TooLarge`.
pub fn encode_head(
    kind: Kind,
    last: bool,
    call: u64,
    header: &impl Message,
    payload_length: usize,
) -> Result<Bytes, FrameError> {
    let header_length = header.encoded_len();
    if header_length > FRAME_HEADER_MAX || payload_length > FRAME_PAYLOAD_MAX {
        return Err(FrameError::TooLarge { header: header_length as u64, payload: payload_length as u64 });
    }
    let mut bytes = BytesMut::with_capacity(PREFIX_LENGTH + header_length);
    bytes.put_slice(&MAGIC);
    bytes.put_u8(VERSION);
    bytes.put_u8(kind as u8);
    bytes.put_u16(if last { FLAG_LAST } else { 0 });
    bytes.put_u32(header_length as u32);
    bytes.put_u32(payload_length as u32);
    bytes.put_u64(call);
    bytes.put_u32(0);
    header.encode_raw(&mut bytes);
    debug_assert_eq!(bytes.len(), PREFIX_LENGTH + header_length);
    let crc = checksum(&bytes[..CRC_AT], &bytes[PREFIX_LENGTH..]);
    bytes[CRC_AT..PREFIX_LENGTH].copy_from_slice(&crc.to_be_bytes());
    Ok(bytes.freeze())
}

/// A whole frame as received. Its payload is not verified yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What the header is.
    pub kind: Kind,
    /// Whether this is the last frame of its call in this direction.
    pub last: bool,
    /// Number of the call on its connection.
    pub call: u64,
    /// An encoded message.
    pub header: Bytes,
    /// Raw bytes.
    pub payload: Bytes,
}

#[cfg(test)]
mod tests {
    use ozone_proto::datanode::v1::{Request, WriteChunk, request};
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Request {
        let chunk = WriteChunk { block: 0x0123_4567_89ab_cdef, offset: 16384, crcs: vec![0xdead_beef] };
        Request { request_id: "r1".to_owned(), op: Some(request::Op::WriteChunk(chunk)) }
    }

    fn decode(bytes: &[u8]) -> Result<(Prefix, &[u8]), FrameError> {
        let prefix_bytes: &[u8; PREFIX_LENGTH] = bytes[..PREFIX_LENGTH].try_into().unwrap();
        let prefix = Prefix::decode(prefix_bytes)?;
        let header = &bytes[PREFIX_LENGTH..PREFIX_LENGTH + prefix.header_length];
        Prefix::check(prefix_bytes, header)?;
        Ok((prefix, header))
    }

    /// The example of docs/formats/data-frame.md; a change of it is a change of the wire format.
    #[test]
    fn golden_frame_is_the_documented_one() {
        let bytes = encode_head(Kind::Request, true, 7, &sample(), 5).unwrap();
        let document = include_str!("../../docs/formats/data-frame.md");
        let documented: String = document
            .lines()
            .skip_while(|line| !line.starts_with("```hex"))
            .skip(1)
            .take_while(|line| !line.starts_with("```"))
            .flat_map(|line| line.split('#').next().unwrap_or_default().chars())
            .filter(|c| !c.is_whitespace())
            .collect();
        let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, documented);
        let (prefix, header) = decode(&bytes).unwrap();
        assert_eq!(
            prefix,
            Prefix { kind: Kind::Request, last: true, header_length: header.len(), payload_length: 5, call: 7 }
        );
        assert_eq!(Request::decode(header).unwrap(), sample());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = encode_head(Kind::Request, false, 7, &sample(), 0).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A longer header than there is cannot be decoded here; a reader would wait for it and then find the checksum wrong.
            bytes.resize(good.len() + FRAME_HEADER_MAX, 0);
            assert!(decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn limits_hold_on_both_sides() {
        let header = Request { request_id: "x".repeat(FRAME_HEADER_MAX), op: None };
        assert!(matches!(encode_head(Kind::Request, true, 1, &header, 0), Err(FrameError::TooLarge { .. })));
        assert!(encode_head(Kind::Request, true, 1, &sample(), FRAME_PAYLOAD_MAX).is_ok());
        assert!(encode_head(Kind::Request, true, 1, &sample(), FRAME_PAYLOAD_MAX + 1).is_err());
        let mut bytes = [0; PREFIX_LENGTH];
        bytes.copy_from_slice(&encode_head(Kind::Request, true, 1, &sample(), 0).unwrap()[..PREFIX_LENGTH]);
        bytes[12..16].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(Prefix::decode(&bytes), Err(FrameError::TooLarge { .. })));
        assert!(matches!(Prefix::decode(b"GET / HTTP/1.1\r\nHost: a.bc\r\n"), Err(FrameError::Magic(_))));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::array::uniform28(any::<u8>()), start in 0..8_usize, header in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = bytes;
            let good = [b'O', b'3', b'D', b'F', VERSION, 2, 0, 1];
            bytes[..start].copy_from_slice(&good[..start]);
            if let Ok(prefix) = Prefix::decode(&bytes) {
                prop_assert!(prefix.header_length <= FRAME_HEADER_MAX && prefix.payload_length <= FRAME_PAYLOAD_MAX);
                prop_assert!(Prefix::check(&bytes, &header).is_err() || header.len() < 8);
            }
        }

        #[test]
        fn what_is_written_is_read(call: u64, last: bool, payload in 0..=FRAME_PAYLOAD_MAX, id in "[a-z]{0,40}") {
            let header = Request { request_id: id, op: None };
            let bytes = encode_head(Kind::Response, last, call, &header, payload).unwrap();
            let (prefix, rest) = decode(&bytes).unwrap();
            prop_assert_eq!((prefix.call, prefix.last, prefix.payload_length), (call, last, payload));
            prop_assert_eq!(Request::decode(rest).unwrap(), header);
        }
    }
}
