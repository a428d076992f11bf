//! Developer tasks, run as `cargo xtask NAME`.

fn main() {}
