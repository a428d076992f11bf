//! Starts a whole cluster on this machine, in one process or one process a role; asks how it is, and stops it.
//!
//! A start goes [`Spec`] → `prepare` (whose folder, which ports, secret, settings: all that can be refused is refused before
//! anything is written) → the roles, side by side → `access` (ready, the user's key, `cluster.env`). [`Home`] knows where
//! things lie and who runs.

mod access;
mod children;
mod env_file;
mod error;
mod health;
mod home;
mod in_process;
mod ports;
mod prepare;
mod processes;
mod role;
mod settings;
mod spec;
mod start;
mod user;

pub use children::{role_command, stop};
pub use env_file::Access;
pub use error::Error;
pub use health::{Health, ask};
pub use home::Home;
pub use in_process::start_role;
pub use prepare::new_secret;
pub use processes::{Pids, Process};
pub use role::Role;
pub use settings::{ClientConfig, ClusterConfig, DATANODES_MAX, DevConfig, Settings};
pub use spec::{Ports, Spec};
pub use start::Cluster;
pub use user::invoking_user;
