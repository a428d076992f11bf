//! Starts a whole cluster on this machine, in one process or one process a role.
