//! Settings: typed units, and one way to read them.
//!
//! Settings are plain data whose `Default` is a working development node. They are read in one order: defaults, then the
//! file, then the environment (`OZONE__SECTION__KEY`), then flags. A name that is not known is refused with the nearest
//! one that is, so that a slip of the pen never silently leaves a default in force.

mod load;
mod render;
mod units;

pub use load::{ConfigError, Sources, load, parse};
pub use render::{Definition, render};
pub use units::{ByteSize, TimeSpan};

use serde::{Deserialize, Serialize};

/// The section `security`, which every role reads.
///
/// Without it only loopback may be bound, and a command line's asserted user is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// Whether connections are authenticated in full, so that addresses beyond loopback may be bound.
    pub enabled: bool,
}
