//! From path, host, query and method to the operation that is asked for.

mod address;
mod query;
mod table;

pub(crate) use address::{Target, bucket_of_host};
pub(crate) use query::{Query, is_plain, percent_decode, percent_encode};
pub(crate) use table::{Op, find};
