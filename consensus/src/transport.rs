//! How messages reach the other members of a group.

use crate::core::{Envelope, MemberId};

/// Carries messages out; what comes in goes to [`crate::group::Group::deliver`]. Messages may be lost, delayed, repeated and
/// reordered; they must not be changed, and the receiver must know the sender.
pub trait Transport: Send + 'static {
    /// Sends without waiting; drops the message where it cannot be sent now.
    fn send(&self, envelope: Envelope);
    /// Where clients reach a member.
    fn address(&self, member: MemberId) -> Option<String>;
}

/// For a group of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Transport for Alone {
    fn send(&self, envelope: Envelope) {
        tracing::warn!(to = %envelope.to, "a message to another member has no way there");
    }
    fn address(&self, _member: MemberId) -> Option<String> {
        None
    }
}
