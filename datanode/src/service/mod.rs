//! What clients ask of this datanode: decoded, authorised, answered.

mod access;
pub(crate) mod data;
mod read;
mod window;
