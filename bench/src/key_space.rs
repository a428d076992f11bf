//! The keys that a run works on: numbered, with contents that follow from their names.

use bytes::Bytes;
use clap::Args;
use ozone_common::config::ByteSize;

use crate::content::Contents;

/// Which keys.
#[derive(Args, Clone, Debug)]
pub struct KeySpace {
    /// What the keys' names begin with
    #[arg(short, long, default_value = "freon")]
    pub prefix: String,
    /// Bytes of each key
    #[arg(short, long, default_value = "10KiB")]
    pub size: ByteSize,
    /// Contents follow from this number and the keys' names
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
}

impl KeySpace {
    /// The name of the `n`th key. Names sort as their numbers do.
    pub fn name(&self, n: u64) -> Bytes {
        format!("{}/{n:010}", self.prefix).into()
    }

    /// What they hold.
    pub fn contents(&self) -> Contents {
        Contents::new(self.seed)
    }
}
