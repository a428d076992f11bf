//! kill -9 of every process in the middle of a mixed load of 16 threads; nothing acknowledged is lost.
//!
//! The long form is `cargo run -p ozone-integration-tests --bin load-checker`.

use ozone_integration_tests::{Inline, KillRounds, Options};

fn check(options: Options, inline: Inline, rounds: u32) {
    KillRounds { rounds, options, inline, changes: 900, seed: 100 }.run();
}

#[test]
fn one_process_values_on_datanodes() {
    check(Options::default(), Inline::Off, 2);
}

#[test]
fn one_process_values_in_the_key_space_manager() {
    check(Options::default(), Inline::On, 2);
}

#[test]
fn a_process_per_role() {
    check(Options::processes(), Inline::Off, 2);
}
