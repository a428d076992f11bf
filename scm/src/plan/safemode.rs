//! When the SCM knows enough after its start to hand out blocks.
//!
//! Only allocation waits: reads and deletes never do. What cannot come is not waited for: a container that no node ever reported, one that was
//! empty when it closed, and one that is being deleted hold nothing that could be missing.

use crate::tables::container::{Container, ContainerState};

/// What is known so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Datanodes registered since start and healthy.
    pub datanodes: usize,
    /// Containers that [`expects`] a report.
    pub containers: u64,
    /// Of these, those with at least one replica reported.
    pub reported: u64,
}

/// How much is enough.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Datanodes.
    pub datanodes_min: usize,
    /// Part of the containers, 0 to 1.
    pub reported_min: f64,
}

/// A rule and how far it is from holding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its name, as Ozone's admins know it.
    pub name: &'static str,
    /// Whether it holds.
    pub satisfied: bool,
    /// For people.
    pub status: String,
}

/// Whether a replica of this container is to be expected.
pub fn expects(container: &Container) -> bool {
    container.reported && container.state <= ContainerState::Closed
}

/// The rules. Safe mode ends when all hold.
pub fn rules(facts: &Facts, limits: &Limits) -> Vec<Rule> {
    let Facts { datanodes, containers, reported } = *facts;
    let needed = containers_needed(containers, limits.reported_min);
    vec![
        Rule {
            name: "DataNodeSafeModeRule",
            satisfied: datanodes >= limits.datanodes_min,
            status: format!("{datanodes} datanodes registered, {} needed", limits.datanodes_min),
        },
        Rule {
            name: "ContainerSafeModeRule",
            satisfied: reported >= needed,
            status: format!("{reported} of {containers} containers have a replica reported, {needed} needed"),
        },
    ]
}

/// Rounded up, so that 1.0 means all; never more than there are.
fn containers_needed(containers: u64, part: f64) -> u64 {
    ((containers as f64 * part.clamp(0.0, 1.0)).ceil() as u64).min(containers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { datanodes_min: 2, reported_min: 0.99 };

    fn holds(facts: Facts) -> Vec<bool> {
        rules(&facts, &LIMITS).iter().map(|rule| rule.satisfied).collect()
    }

    #[test]
    fn each_rule_says_how_far_it_is() {
        for (datanodes, containers, reported, expected) in [
            (0, 0, 0, [false, true]),
            (2, 0, 0, [true, true]),
            (1, 1, 0, [false, false]),
            (3, 1, 1, [true, true]),
            (2, 100, 98, [true, false]),
            (2, 100, 99, [true, true]),
            (2, 200, 197, [true, false]),
        ] {
            assert_eq!(
                holds(Facts { datanodes, containers, reported }),
                expected,
                "{datanodes} {containers} {reported}"
            );
        }
        let rules = rules(&Facts { datanodes: 1, containers: 200, reported: 10 }, &LIMITS);
        assert_eq!(rules[0].status, "1 datanodes registered, 2 needed");
        assert_eq!(rules[1].status, "10 of 200 containers have a replica reported, 198 needed");
    }

    proptest! {
        #[test]
        fn more_reports_never_break_a_rule_and_all_reports_satisfy(containers in 0..1_000_000u64, reported in 0..1_000_000u64, part in 0.0..1.5f64) {
            let limits = Limits { datanodes_min: 0, reported_min: part };
            let ok = |reported| rules(&Facts { datanodes: 0, containers, reported }, &limits)[1].satisfied;
            prop_assert!(ok(containers), "it never waits for what cannot come");
            let reported = reported.min(containers);
            prop_assert!(!ok(reported) || reported == containers || ok(reported + 1));
            prop_assert!(!ok(reported) || reported as f64 >= containers as f64 * part.min(1.0) - 0.001);
        }
    }
}
