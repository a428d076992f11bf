//! The simulator itself, and a smoke of seeds. Long runs: `cargo run -p ozone-sim --release -- --count 100000 --threads 8`.

mod raft;
