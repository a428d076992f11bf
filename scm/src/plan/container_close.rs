//! When an open container takes no more blocks, and when a closing one is closed.

use ozone_common::id::DatanodeId;
use ozone_proto::scm::v1::ReplicaState;

use crate::tables::container::{Container, ContainerState};

/// One replica as its node reported it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// Who holds it.
    pub node: DatanodeId,
    /// Its state there.
    pub state: ReplicaState,
    /// Live bytes.
    pub used: u64,
}

/// Settings of the decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Size of a container, bytes.
    pub container_size: u64,
    /// How long blocks handed out may be on their way: after it a spent container is closed whatever was written.
    pub spent_close_ms: u64,
    /// Whether a new container of this replication would get all its replicas.
    pub full_placement: bool,
}

/// What a container needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// [`crate::core::Command::CloseContainers`], and why.
    Close(&'static str),
    /// Tell these nodes to close their replica.
    CloseReplicas(Vec<DatanodeId>),
    /// [`crate::core::Command::MarkClosed`], with those who reported.
    MarkClosed(Vec<DatanodeId>),
    /// Nothing now.
    Nothing,
}

/// The next step of a container, given what was reported of it.
pub fn plan(container: &Container, replicas: &[Replica], now_ms: u64, limits: &Limits) -> Step {
    let by = |node: DatanodeId| replicas.iter().find(|replica| replica.node == node);
    match container.state {
        ContainerState::Open => match close_reason(container, replicas, now_ms, limits) {
            Some(reason) => Step::Close(reason),
            None => Step::Nothing,
        },
        ContainerState::Closing => {
            let closed = |node: &DatanodeId| by(*node).is_some_and(|r| r.state == ReplicaState::Closed);
            let (done, waiting): (Vec<DatanodeId>, Vec<DatanodeId>) = container.members.iter().partition(|n| closed(n));
            if waiting.is_empty() {
                return Step::MarkClosed(done);
            }
            // A member without a replica is told too: it makes an empty closed one, so that a late write finds the container closed.
            let mut tell: Vec<DatanodeId> = waiting
                .into_iter()
                .filter(|node| by(*node).is_none_or(|r| matches!(r.state, ReplicaState::Open | ReplicaState::Closing)))
                .collect();
            tell.extend(outsiders_open(container, replicas));
            if tell.is_empty() { Step::Nothing } else { Step::CloseReplicas(tell) }
        }
        ContainerState::Closed | ContainerState::Deleting | ContainerState::Deleted => {
            let tell: Vec<DatanodeId> =
                replicas.iter().filter(|r| r.state == ReplicaState::Open).map(|r| r.node).collect();
            if tell.is_empty() { Step::Nothing } else { Step::CloseReplicas(tell) }
        }
    }
}

/// Nodes that were dropped from the membership and still hold an open replica.
fn outsiders_open<'a>(container: &'a Container, replicas: &'a [Replica]) -> impl Iterator<Item = DatanodeId> + 'a {
    replicas.iter().filter(|r| r.state == ReplicaState::Open && !container.has(r.node)).map(|r| r.node)
}

fn close_reason(container: &Container, replicas: &[Replica], now_ms: u64, limits: &Limits) -> Option<&'static str> {
    let members = || replicas.iter().filter(|replica| container.has(replica.node));
    if members().any(|r| !matches!(r.state, ReplicaState::Open | ReplicaState::Unspecified)) {
        return Some("a member's replica is no longer open");
    }
    if members().any(|r| r.used >= limits.container_size) {
        return Some("it is full");
    }
    if container.spent_ms > 0 && now_ms.saturating_sub(container.spent_ms) >= limits.spent_close_ms {
        return Some("its blocks were handed out and their time is over");
    }
    if container.members.len() < container.replication.replicas() && limits.full_placement {
        return Some("it has fewer replicas than new ones get");
    }
    None
}

#[cfg(test)]
mod tests {
    use ozone_common::id::ContainerId;
    use ozone_common::replication::Replication;

    use super::*;

    const LIMITS: Limits = Limits { container_size: 1000, spent_close_ms: 60, full_placement: true };

    fn node(n: u8) -> DatanodeId {
        DatanodeId::from_bytes([n; 16])
    }

    fn container(state: ContainerState, members: &[u8], spent_ms: u64) -> Container {
        Container {
            id: ContainerId::new(7).unwrap(),
            state,
            replication: Replication::Three,
            epoch: 1,
            members: members.iter().map(|n| node(*n)).collect(),
            reserved_bytes: 0,
            next_local: 9,
            opened_ms: 1,
            spent_ms,
            reported: true,
        }
    }

    fn replica(n: u8, state: ReplicaState, used: u64) -> Replica {
        Replica { node: node(n), state, used }
    }

    #[test]
    fn open_containers_close_for_a_reason() {
        use ReplicaState::{Closed, Open, Unhealthy};
        for (members, spent_ms, replicas, now_ms, full_placement, closes) in [
            (&[1, 2, 3][..], 0, &[][..], 1_000, true, false),
            (&[1, 2, 3], 0, &[replica(1, Open, 999), replica(2, Open, 0)], 1_000, true, false),
            (&[1, 2, 3], 0, &[replica(1, Open, 1000)], 1_000, true, true),
            (&[1, 2, 3], 0, &[replica(4, Open, 1000)], 1_000, true, false),
            (&[1, 2, 3], 0, &[replica(2, Closed, 0)], 1_000, true, true),
            (&[1, 2, 3], 0, &[replica(2, Unhealthy, 0)], 1_000, true, true),
            (&[1, 2, 3], 100, &[], 159, true, false),
            (&[1, 2, 3], 100, &[], 160, true, true),
            (&[1, 2], 0, &[], 1_000, true, true),
            (&[1, 2], 0, &[], 1_000, false, false),
        ] {
            let limits = Limits { full_placement, ..LIMITS };
            let step = plan(&container(ContainerState::Open, members, spent_ms), replicas, now_ms, &limits);
            assert_eq!(
                matches!(step, Step::Close(_)),
                closes,
                "{members:?} {spent_ms} {replicas:?} {now_ms}: {step:?}"
            );
            assert!(closes || step == Step::Nothing);
        }
    }

    #[test]
    fn a_closing_container_waits_for_every_member_and_tells_those_that_lag() {
        use ReplicaState::{Closed, Closing, Open, Unhealthy};
        let closing = container(ContainerState::Closing, &[1, 2], 0);
        let all = [node(1), node(2)].to_vec();
        for (replicas, step) in [
            (&[][..], Step::CloseReplicas(all.clone())),
            (&[replica(1, Closed, 0)], Step::CloseReplicas(vec![node(2)])),
            (&[replica(1, Closed, 0), replica(2, Closing, 0)], Step::CloseReplicas(vec![node(2)])),
            (&[replica(1, Closed, 0), replica(2, Unhealthy, 0)], Step::Nothing),
            (&[replica(1, Closed, 0), replica(2, Closed, 0)], Step::MarkClosed(all)),
            (&[replica(1, Closed, 0), replica(3, Closed, 0)], Step::CloseReplicas(vec![node(2)])),
            (
                &[replica(1, Closed, 0), replica(2, Unhealthy, 0), replica(3, Open, 0)],
                Step::CloseReplicas(vec![node(3)]),
            ),
        ] {
            assert_eq!(plan(&closing, replicas, 1, &LIMITS), step, "{replicas:?}");
        }
        let closed = container(ContainerState::Closed, &[1, 2], 0);
        assert_eq!(plan(&closed, &[replica(1, Closed, 0), replica(2, Closed, 0)], 1, &LIMITS), Step::Nothing);
        assert_eq!(plan(&closed, &[replica(3, Open, 0)], 1, &LIMITS), Step::CloseReplicas(vec![node(3)]));
    }
}
