//! A whole run: faults, then healing, then the demand that the group goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Result, bail};
use ozone_consensus::core::Index;

use super::world::{Report, World};

/// After healing, a group must have answered and converged within this time.
const HEAL_WITHIN_US: u64 = 20_000_000;

/// A run that failed, and how to see it again.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}: {what}\nreplay: cargo run -p ozone-sim -- --seed {seed} --trace")]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What went wrong.
    pub what: String,
}

/// Runs a seed to its end; `print` writes all that happens to standard output.
///
/// # Errors
/// A fact does not hold, a promise to clients is broken, the group does not recover, or its code panics.
pub fn check(seed: u64, print: bool) -> Result<Report, Failure> {
    let failure = |what: String| Failure { seed, what };
    match catch_unwind(AssertUnwindSafe(|| run(seed, print))) {
        Ok(outcome) => outcome.map_err(|error| failure(format!("{error:#}"))),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(failure(text.unwrap_or_else(|| "panicked".to_owned())))
        }
    }
}

fn run(seed: u64, print: bool) -> Result<Report> {
    let mut world = World::new(seed, print)?;
    let faulty_until = world.profile.faulty_for.as_micros() as u64;
    while world.now_us < faulty_until {
        world.step()?;
    }
    world.heal()?;
    let healed_at = world.committed();
    let (reads_before, deadline) = (world.oracle.reads_answered, world.now_us + HEAL_WITHIN_US);
    let mut goal = None;
    loop {
        world.step()?;
        let acknowledged = world.oracle.last_acknowledged;
        if goal.is_none() && acknowledged > healed_at {
            goal = Some(acknowledged);
        }
        if goal.is_some_and(|goal| world.oracle.reads_answered > reads_before && world.has_everywhere(goal)) {
            return Ok(world.into_report());
        }
        if world.now_us > deadline {
            bail!("no progress after healing: goal {goal:?}, {}", world.describe());
        }
    }
}

impl World {
    /// Nothing goes wrong any more.
    fn heal(&mut self) -> Result<()> {
        self.trace.note(self.now_us, "heal", &[]);
        self.healed = true;
        self.profile = self.profile.healed();
        self.network.heal();
        let now_us = self.now_us;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.disk.slowness = 1;
                node.clock.set_pace(now_us, 1000);
            }
            self.start(id)?;
            self.turn(id)?;
        }
        Ok(())
    }

    /// Whether all members that the leader knows have applied everything up to `goal`.
    fn has_everywhere(&mut self, goal: Index) -> bool {
        let processes = self.nodes.values().filter_map(|node| node.process.as_ref());
        let newest = processes
            .filter(|process| process.leads())
            .map(|process| process.raft.status())
            .max_by_key(|status| status.term);
        let Some(newest) = newest else { return false };
        newest.members.iter().all(|member| self.process(member).is_some_and(|process| process.machine.applied >= goal))
    }

    fn describe(&self) -> String {
        let lines = self.nodes.values().map(|node| match &node.process {
            None => format!("member {} is down", node.id),
            Some(process) => format!("applied {} of {:?}", process.machine.applied, process.raft.status()),
        });
        lines.collect::<Vec<_>>().join("\n  ")
    }
}
