//! S3's documents: written straight into text, read into a small tree that borrows from the body.

mod read;
mod write;

pub(crate) use read::{Element, parse};
pub(crate) use write::{DECLARATION, Writer, document, plain_document};
