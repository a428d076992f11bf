//! Who asks. One gate stands before the router; what it lets through carries a [`Verified`] that is made nowhere else.

use std::sync::Arc;

/// A user whose signature was verified. Only the gate makes one: the fields are private to `auth`.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    user: Arc<str>,
    access_key: Arc<str>,
}

impl Verified {
    /// The user, as the OM knows it.
    pub fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// The access key that signed.
    pub fn access_key(&self) -> &Arc<str> {
        &self.access_key
    }
}
