//! Real processes, real clients: starts clusters with the built program, loads them, kills them, and checks what they keep.
//!
//! Everything goes through the program's own command line, its files for shells and its network; nothing of the workspace is linked in.

mod clients;
mod cluster;
mod load;
mod program;
mod rounds;
mod usage;
mod wait;

pub use clients::{aws, python, run, sha256, shell};
pub use cluster::{Cluster, Options, ready_to_serve};
pub use load::Load;
pub use program::{program, tool};
pub use rounds::{Inline, KillRounds};
pub use usage::{cpu_time, status_kib};
pub use wait::{eventually, within};
