//! Blocks in segments: records, the index of where they lie, the lanes that append them, reads and compaction.

pub(crate) mod buffers;
pub(crate) mod compact;
pub(crate) mod edit;
pub(crate) mod index;
pub(crate) mod lane;
mod plan;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod row;
mod seal;
