//! Who holds which replica, as reported.
//!
//! Compact: a node is a number, a container's few replicas lie in one allocation. About 130 bytes a container of three
//! replicas; a digest adds 32 per closed replica.

use std::collections::{BTreeMap, HashMap};

use ozone_common::id::{ContainerId, DatanodeId};
use ozone_proto::scm::v1::{ContainerReplicaReport, ReplicaState};

/// A replica as reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenReplica {
    node: u32,
    epoch: u32,
    /// Live bytes.
    pub used: u64,
    /// Live blocks.
    pub blocks: u64,
    /// The last delete transaction it carried out.
    pub delete_sequence: u64,
    digest: Option<Box<[u8; 32]>>,
    state: u8,
}

impl SeenReplica {
    /// Its state at its node.
    pub fn state(&self) -> ReplicaState {
        ReplicaState::try_from(i32::from(self.state)).unwrap_or(ReplicaState::Unspecified)
    }
    /// The epoch it was last told.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
    /// Digest of its blocks, once closed.
    pub fn digest(&self) -> Option<&[u8; 32]> {
        self.digest.as_deref()
    }
}

/// What a report changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Containers with a replica that is new, gone or in another state, or whose size changed.
    pub containers: Vec<ContainerId>,
    /// Of these, those of which no replica was known before.
    pub first_seen: Vec<ContainerId>,
}

/// The map.
#[derive(Debug, Default)]
pub struct ReplicaMap {
    nodes: BTreeMap<DatanodeId, u32>,
    names: Vec<DatanodeId>,
    /// Never iterated where order could reach a reply or a command.
    containers: HashMap<ContainerId, Vec<SeenReplica>>,
}

impl ReplicaMap {
    fn number(&mut self, node: DatanodeId) -> u32 {
        let names = &mut self.names;
        *self.nodes.entry(node).or_insert_with(|| {
            names.push(node);
            names.len() as u32 - 1
        })
    }

    /// Takes a report in: a full one replaces all that is known of the node.
    pub fn report(
        &mut self,
        node: DatanodeId,
        full: bool,
        replicas: &[(ContainerId, &ContainerReplicaReport)],
    ) -> Changes {
        let number = self.number(node);
        let mut changes = Changes::default();
        for (id, report) in replicas {
            if report.state() == ReplicaState::Deleted {
                self.remove(*id, number, &mut changes);
                continue;
            }
            let seen = SeenReplica {
                node: number,
                epoch: report.epoch,
                used: report.used,
                blocks: report.blocks,
                delete_sequence: report.delete_sequence,
                digest: report.digest[..].try_into().ok().map(Box::new),
                state: report.state as u8,
            };
            let known = self.containers.entry(*id).or_insert_with(|| Vec::with_capacity(3));
            if known.is_empty() {
                changes.first_seen.push(*id);
            }
            match known.iter_mut().find(|replica| replica.node == number) {
                Some(replica) if *replica == seen => {}
                Some(replica) => {
                    *replica = seen;
                    changes.containers.push(*id);
                }
                None => {
                    known.push(seen);
                    changes.containers.push(*id);
                }
            }
        }
        if full {
            let mut named: Vec<ContainerId> = replicas.iter().map(|(id, _)| *id).collect();
            named.sort_unstable();
            let holds = |replicas: &[SeenReplica]| replicas.iter().any(|replica| replica.node == number);
            let gone =
                self.containers.iter().filter(|(id, replicas)| named.binary_search(id).is_err() && holds(replicas));
            let mut gone: Vec<ContainerId> = gone.map(|(id, _)| *id).collect();
            gone.sort_unstable();
            for id in gone {
                self.remove(id, number, &mut changes);
            }
        }
        changes
    }

    fn remove(&mut self, id: ContainerId, number: u32, changes: &mut Changes) {
        let Some(replicas) = self.containers.get_mut(&id) else { return };
        let before = replicas.len();
        replicas.retain(|replica| replica.node != number);
        if replicas.len() != before {
            changes.containers.push(id);
        }
        if replicas.is_empty() {
            self.containers.remove(&id);
        }
    }

    /// Forgets a node's replicas: it is dead. Gives the containers concerned.
    pub fn forget(&mut self, node: DatanodeId) -> Vec<ContainerId> {
        self.report(node, true, &[]).containers
    }

    /// The replicas of a container, with their nodes.
    pub fn get(&self, id: ContainerId) -> impl Iterator<Item = (DatanodeId, &SeenReplica)> {
        let replicas = self.containers.get(&id).map_or(&[][..], |replicas| &replicas[..]);
        replicas.iter().map(|replica| (self.names[replica.node as usize], replica))
    }

    /// Replicas per node.
    pub fn count_by_node(&self) -> BTreeMap<DatanodeId, u32> {
        let mut counts = vec![0; self.names.len()];
        for replica in self.containers.values().flatten() {
            counts[replica.node as usize] += 1;
        }
        self.names.iter().copied().zip(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(container: u64, state: ReplicaState, used: u64) -> ContainerReplicaReport {
        ContainerReplicaReport { container, state: state as i32, epoch: 1, used, ..Default::default() }
    }

    fn id(n: u64) -> ContainerId {
        ContainerId::new(n).unwrap()
    }

    type Told = (u8, bool, Vec<(u64, bool, u64)>);

    fn reports() -> impl Strategy<Value = Vec<Told>> {
        let one = (1..6u64, prop::bool::weighted(0.2), 0..3u64);
        prop::collection::vec((1..4u8, any::<bool>(), prop::collection::vec(one, 0..5)), 0..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_plain_map(told in reports()) {
            let (mut map, mut model) = (ReplicaMap::default(), BTreeMap::<(u64, u8), u64>::new());
            for (node, full, rows) in told {
                let node_id = DatanodeId::from_bytes([node; 16]);
                let before = model.clone();
                if full {
                    model.retain(|(_, of), _| *of != node);
                }
                let mut rows = rows;
                rows.sort_unstable();
                rows.dedup_by_key(|(container, ..)| *container);
                let mut wire = Vec::new();
                for (container, deleted, used) in rows {
                    if deleted {
                        model.remove(&(container, node));
                        wire.push(report(container, ReplicaState::Deleted, 0));
                    } else {
                        model.insert((container, node), used);
                        wire.push(report(container, ReplicaState::Open, used));
                    }
                }
                let rows: Vec<_> = wire.iter().map(|report| (id(report.container), report)).collect();
                let mut changes = map.report(node_id, full, &rows);
                changes.containers.sort_unstable();
                let changed: Vec<ContainerId> = (1..6)
                    .filter(|container| before.get(&(*container, node)) != model.get(&(*container, node)))
                    .map(id)
                    .collect();
                prop_assert_eq!(changes.containers, changed);
                for first in changes.first_seen {
                    prop_assert!(!before.keys().any(|(container, _)| id(*container) == first));
                }
                let mut found = BTreeMap::new();
                for container in 1..6 {
                    for (node, replica) in map.get(id(container)) {
                        found.insert((container, node.as_bytes()[0]), replica.used);
                    }
                }
                prop_assert_eq!(&found, &model);
                let count = |node: u8| model.keys().filter(|(_, of)| *of == node).count() as u32;
                for (node, counted) in map.count_by_node() {
                    prop_assert_eq!(counted, count(node.as_bytes()[0]));
                }
            }
            let node = DatanodeId::from_bytes([1; 16]);
            map.forget(node);
            prop_assert!((1..6).all(|container| map.get(id(container)).all(|(holder, _)| holder != node)));
        }
    }
}
