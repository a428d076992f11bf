//! Whether the SCM is still in safe mode: the facts that [`crate::plan::safemode`] judges.

use std::collections::HashSet;

use ozone_common::id::ContainerId;

use crate::plan::safemode::{Facts, Limits, Rule, rules};

/// Safe mode since start. It ends once and does not come back before the next start.
#[derive(Debug)]
pub struct SafeMode {
    limits: Limits,
    /// Containers without a replica reported; only its size and membership are looked at.
    awaited: HashSet<ContainerId>,
    expected: u64,
    ended: bool,
}

impl SafeMode {
    /// Begins with the containers of which a report is to be expected.
    pub fn new(limits: Limits, expected: HashSet<ContainerId>) -> Self {
        Self { limits, expected: expected.len() as u64, awaited: expected, ended: false }
    }

    /// A replica of these was reported.
    pub fn reported(&mut self, containers: impl IntoIterator<Item = ContainerId>) {
        if !self.awaited.is_empty() {
            for container in containers {
                self.awaited.remove(&container);
            }
        }
    }

    /// The rules as they stand.
    pub fn rules(&self, datanodes: usize) -> Vec<Rule> {
        let reported = self.expected - self.awaited.len() as u64;
        rules(&Facts { datanodes, containers: self.expected, reported }, &self.limits)
    }

    /// Whether it ended with this look at the rules.
    pub fn ends_now(&mut self, datanodes: usize) -> bool {
        let ends = !self.ended && self.rules(datanodes).iter().all(|rule| rule.satisfied);
        self.ended |= ends;
        ends
    }

    /// Whether it is on.
    pub const fn is_on(&self) -> bool {
        !self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_once_when_reports_came_and_stays_ended() {
        let id = |n| ContainerId::new(n).unwrap();
        let limits = Limits { datanodes_min: 1, reported_min: 1.0 };
        let mut mode = SafeMode::new(limits, HashSet::from([id(1), id(2)]));
        mode.reported([id(1), id(9)]);
        assert!(!mode.ends_now(1) && mode.is_on());
        assert!(mode.rules(1)[1].status.starts_with("1 of 2"));
        mode.reported([id(2), id(2)]);
        assert!(!mode.ends_now(0), "no node");
        assert!(mode.ends_now(1) && !mode.is_on());
        assert!(!mode.ends_now(1), "told once");
        assert!(!mode.is_on(), "and lost nodes do not bring it back");
    }
}
