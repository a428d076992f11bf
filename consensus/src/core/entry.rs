//! What a log holds.

use bytes::Bytes;

use super::id::EntryId;
use super::membership::{Malformed, Membership};

/// One entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its term and place.
    pub id: EntryId,
    /// What it carries.
    pub payload: Payload,
}

/// What an entry carries. On disk and on the wire it is a kind byte and a body, see [`Payload::kind`] and [`Payload::body`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// The first entry of a leader: with it the entries of earlier leaders become committed.
    Noop,
    /// Who belongs to the group from here on.
    Members(Membership),
    /// A batch of commands' effects; opaque here.
    Data(Bytes),
}

/// What a stored or received payload is refused for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// From a newer version, or garbage.
    #[error("entry kind {0} is not known; known are 0 (no-op), 1 (members), 2 (data)")]
    Kind(u8),
    /// A no-op has no body.
    #[error("a no-op entry has a body of {0} bytes; it must be empty")]
    Noop(usize),
    /// See [`Malformed`].
    #[error("members entry: {0}")]
    Members(#[from] Malformed),
}

impl Payload {
    /// The kind byte: 0 no-op, 1 members, 2 data.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Members(_) => 1,
            Self::Data(_) => 2,
        }
    }

    /// The body that goes with [`Payload::kind`]. Data is not copied.
    pub fn body(&self) -> Bytes {
        match self {
            Self::Noop => Bytes::new(),
            Self::Members(members) => members.encode(),
            Self::Data(data) => data.clone(),
        }
    }

    /// The opposite of [`Payload::kind`] and [`Payload::body`].
    ///
    /// # Errors
    /// An unknown kind, or a body that the kind cannot have.
    pub fn decode(kind: u8, body: Bytes) -> Result<Self, PayloadError> {
        match kind {
            0 if body.is_empty() => Ok(Self::Noop),
            0 => Err(PayloadError::Noop(body.len())),
            1 => Ok(Self::Members(Membership::decode(&body)?)),
            2 => Ok(Self::Data(body)),
            other => Err(PayloadError::Kind(other)),
        }
    }

    /// What it counts against the bounds in bytes: the body and a constant for what goes with each entry.
    pub fn size_bytes(&self) -> usize {
        /// Kind, term, index and framing, roughly: bounds must hold for entries without a body as well.
        const OVERHEAD: usize = 32;
        OVERHEAD
            + match self {
                Self::Noop => 0,
                Self::Members(members) => members.encoded_len(),
                Self::Data(data) => data.len(),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::MemberId;

    #[test]
    fn payloads_survive_their_stored_form() {
        let members = Membership::new([MemberId(1), MemberId(7)], [MemberId(u64::MAX)]).unwrap();
        for payload in [Payload::Noop, Payload::Members(members), Payload::Data(Bytes::from_static(b"rows"))] {
            assert_eq!(Payload::decode(payload.kind(), payload.body()), Ok(payload));
        }
    }

    #[test]
    fn strange_payloads_are_refused() {
        assert_eq!(Payload::decode(3, Bytes::new()), Err(PayloadError::Kind(3)));
        assert_eq!(Payload::decode(0, Bytes::from_static(b"x")), Err(PayloadError::Noop(1)));
        assert!(matches!(Payload::decode(1, Bytes::from_static(b"x")), Err(PayloadError::Members(_))));
    }
}
