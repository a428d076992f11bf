//! Random commands, with crashes and replay, against the invariants and a plain model of what was promised to callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ozone_common::ErrorCode;
use ozone_common::env::{SeededRng, mem_disk::MemDisk};
use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::replication::Replication;
use ozone_consensus::executor::Stamp;
use ozone_kvstore::mem::MemStore;
use ozone_kvstore::{Batch, Read, Store, Table, TableOptions};
use proptest::prelude::*;

use super::{AllocateBlocks, Command, Outcome, Reply, execute, invariants};
use crate::tables::container::{self, Container, ContainerState};
use crate::tables::deleted_block::{self, Range};
use crate::tables::node::Node;
use crate::tables::{TABLES, sequence::Sequence};

const POSITION: Table = Table("position");
const NODES: u8 = 5;

fn node_id(n: u8) -> DatanodeId {
    DatanodeId::from_bytes([n; 16])
}

fn node(n: u8, incarnation: u8) -> Node {
    Node {
        id: node_id(n),
        host: format!("host{n}"),
        data_port: 1000 + u16::from(n),
        http_port: 2000,
        incarnation: [incarnation; 16],
        version: "0.1.0".into(),
        registered_ms: 0,
    }
}

/// The group in small: a log of effects and a store that replays it after a crash.
struct Machine {
    store: MemStore,
    log: Vec<Batch>,
    now_ms: u64,
    sequence: u64,
}

impl Machine {
    fn new() -> Self {
        let tables: Vec<_> = TABLES.into_iter().chain([(POSITION, TableOptions::Rows)]).collect();
        let store = MemStore::new(Arc::new(MemDisk::new()), &tables);
        Self { store, log: Vec::new(), now_ms: 1_000, sequence: 0 }
    }

    fn run(&mut self, command: Command) -> Outcome {
        self.now_ms += 7;
        self.sequence += 1;
        let stamp = Stamp { now_ms: self.now_ms, term: 1, sequence: self.sequence };
        let outcome = execute(&self.store, stamp, command).unwrap();
        assert!(outcome.reply.is_ok() || outcome.rows.is_empty(), "a refusal changes nothing");
        self.apply(outcome.rows.clone());
        outcome
    }

    fn apply(&mut self, mut rows: Batch) {
        self.log.push(rows.clone());
        rows.put(POSITION, "", (self.log.len() as u64).to_be_bytes().to_vec());
        self.store.write(&rows).unwrap();
    }

    fn crash(&mut self, seed: u64) {
        let before = dump(&self.store);
        self.store.crash(&SeededRng::new(seed));
        let position = self.store.get(POSITION, b"").unwrap();
        let position = position.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap())) as usize;
        for rows in self.log.split_off(position) {
            self.apply(rows);
        }
        assert_eq!(dump(&self.store), before, "replay leads to the same state");
    }

    fn containers(&self) -> BTreeMap<ContainerId, Container> {
        invariants::containers(&self.store).unwrap()
    }
}

fn dump(store: &MemStore) -> Vec<(Table, bytes::Bytes, bytes::Bytes)> {
    let rows = TABLES.iter().flat_map(|(table, _)| {
        store
            .scan_prefix(*table, b"", std::ops::Bound::Unbounded)
            .unwrap()
            .map(|row| row.unwrap())
            .map(|(k, v)| (*table, k, v))
    });
    rows.collect()
}

#[derive(Clone, Debug)]
enum Step {
    Register { node: u8, incarnation: u8 },
    Allocate { three: bool, count: u32, reserve: u64, usable: Vec<u8>, spots: Vec<(u8, u8, u8)> },
    Fail { container: u64, epoch_back: u32, failed: Vec<u8> },
    Close { containers: Vec<u64> },
    Drop { node: u8 },
    MarkClosed { container: u64, reporters: Vec<u8> },
    MarkReported { container: u64 },
    Delete { repeat: bool, container: u64, first: u32, count: u32 },
    Finish { transaction: u64, acked: Vec<u8> },
    Flush,
    Crash { seed: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 1..=NODES;
    let nodes = || prop::collection::vec(1..=NODES, 0..=NODES as usize);
    let container = 1..8u64;
    let step = prop_oneof![
        2 => (node.clone(), 0..3u8).prop_map(|(node, incarnation)| Step::Register { node, incarnation }),
        8 => (any::<bool>(), 0..40u32, 0..400u64, nodes(), prop::collection::vec((1..=NODES, 1..=NODES, 1..=NODES), 0..4))
            .prop_map(|(three, count, reserve, usable, spots)| Step::Allocate { three, count, reserve, usable, spots }),
        4 => (container.clone(), 0..3u32, prop::collection::vec(1..=NODES, 0..3))
            .prop_map(|(container, epoch_back, failed)| Step::Fail { container, epoch_back, failed }),
        1 => prop::collection::vec(1..8u64, 0..3).prop_map(|containers| Step::Close { containers }),
        1 => node.prop_map(|node| Step::Drop { node }),
        3 => (container.clone(), nodes()).prop_map(|(container, reporters)| Step::MarkClosed { container, reporters }),
        1 => container.clone().prop_map(|container| Step::MarkReported { container }),
        3 => (any::<bool>(), container, 0..60u32, 0..30u32)
            .prop_map(|(repeat, container, first, count)| Step::Delete { repeat, container, first, count }),
        3 => (1..6u64, nodes()).prop_map(|(transaction, acked)| Step::Finish { transaction, acked }),
        1 => Just(Step::Flush),
        1 => any::<u64>().prop_map(|seed| Step::Crash { seed }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What callers were told.
#[derive(Default)]
struct Promised {
    blocks: BTreeSet<(ContainerId, u32)>,
    /// Transactions that must still be there, with the members that must answer.
    deletions: BTreeMap<u64, ContainerId>,
    om_sequence: u64,
}

fn ids(numbers: &[u8]) -> Vec<DatanodeId> {
    numbers.iter().map(|n| node_id(*n)).collect()
}

fn step(machine: &mut Machine, promised: &mut Promised, step: &Step) {
    match step {
        Step::Register { node: n, incarnation } => {
            machine.run(Command::RegisterNode { node: node(*n, *incarnation) });
            for container in machine.containers().values() {
                // The record of before is gone; what can be told is that a new incarnation leaves nothing open (checked in its own test).
                assert!(container.state <= ContainerState::Closed);
            }
        }
        Step::Allocate { three, count, reserve, usable, spots } => {
            let replication = if *three { Replication::Three } else { Replication::One };
            let mut usable = ids(usable);
            usable.sort_unstable();
            usable.dedup();
            let placements = spots.iter().map(|(a, b, c)| {
                let mut members = if *three { ids(&[*a, *b, *c]) } else { ids(&[*a]) };
                members.sort_unstable();
                members.dedup();
                members
            });
            let known: BTreeSet<_> = crate::tables::node::all(&machine.store).unwrap().iter().map(|n| n.id).collect();
            let request = AllocateBlocks {
                replication,
                count: *count,
                reserve_bytes: *reserve,
                placements: placements.collect(),
                container_size: 1000,
                open_target: 2,
                usable: usable.into_iter().filter(|id| known.contains(id)).collect(),
            };
            let allowed = request.usable.clone();
            let outcome = machine.run(Command::AllocateBlocks(request));
            let Ok(Reply::Allocated(ranges)) = outcome.reply else { return };
            let total: u32 = ranges.iter().map(|range| range.count).sum();
            assert!(total >= 1 && total <= *count);
            for range in ranges {
                let container = &range.container;
                assert_eq!(machine.containers()[&container.id], *container, "the answer is the record");
                assert_eq!(container.state, ContainerState::Open);
                assert_eq!(container.replication, replication);
                assert!(container.members.iter().all(|member| allowed.contains(member)));
                assert_eq!(range.replicas.iter().map(|n| n.id).collect::<Vec<_>>(), container.members);
                for local in range.first_local..range.first_local + range.count {
                    assert!(container.id.block(local).is_some());
                    assert!(promised.blocks.insert((container.id, local)), "a block id is given out once");
                }
            }
        }
        Step::Fail { container, epoch_back, failed } => {
            let id = ContainerId::new(*container).unwrap();
            let before = machine.containers().get(&id).cloned();
            let epoch = before.as_ref().map_or(1, |c| c.epoch.saturating_sub(*epoch_back).max(1));
            let failed = ids(failed);
            let report = Command::ReportFailedReplicas { container: id, epoch, failed: failed.clone() };
            match machine.run(report.clone()).reply {
                Ok(Reply::Container(told, nodes)) => {
                    assert_eq!(machine.containers()[&id], told, "logged before it is answered");
                    assert!(failed.iter().all(|node| !told.has(*node)), "survivors only");
                    assert!(told.members.len() >= told.replication.min_replicas());
                    assert_eq!(nodes.len(), told.members.len());
                    let dropped = before.unwrap().members.len() != told.members.len();
                    assert!(!dropped || told.state == ContainerState::Closing);
                    assert_eq!(
                        machine.run(report).reply,
                        Ok(Reply::Container(told, nodes)),
                        "a repeat changes nothing"
                    );
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(machine.containers().get(&id), before.as_ref());
                    let known = match &before {
                        None => error.code == ErrorCode::ContainerNotFound,
                        Some(_) => matches!(error.code, ErrorCode::ContainerNotOpen | ErrorCode::InsufficientDatanodes),
                    };
                    assert!(known, "{error}");
                }
            }
        }
        Step::Close { containers } => {
            let containers: Vec<_> = containers.iter().map(|id| ContainerId::new(*id).unwrap()).collect();
            machine.run(Command::CloseContainers { containers: containers.clone() }).reply.unwrap();
            let all = machine.containers();
            assert!(containers.iter().all(|id| all.get(id).is_none_or(|c| c.state > ContainerState::Open)));
        }
        Step::Drop { node } => {
            let all: Vec<ContainerId> = machine.containers().into_keys().collect();
            machine.run(Command::DropMember { node: node_id(*node), containers: all }).reply.unwrap();
            let open = |c: &&Container| c.state == ContainerState::Open && c.has(node_id(*node));
            assert_eq!(machine.containers().values().find(open), None);
        }
        Step::MarkClosed { container, reporters } => {
            let id = ContainerId::new(*container).unwrap();
            let before = machine.containers().get(&id).cloned();
            machine.run(Command::MarkClosed { containers: vec![(id, ids(reporters))] }).reply.unwrap();
            let Some(before) = before else { return };
            let may =
                before.state == ContainerState::Closing && before.members.iter().all(|m| ids(reporters).contains(m));
            let closed = machine.containers()[&id].state == ContainerState::Closed;
            assert_eq!(closed, may || before.state == ContainerState::Closed);
        }
        Step::MarkReported { container } => {
            let containers = vec![ContainerId::new(*container).unwrap()];
            machine.run(Command::MarkReported { containers }).reply.unwrap();
        }
        Step::Delete { repeat, container, first, count } => {
            let sequence = if *repeat { promised.om_sequence } else { promised.om_sequence + 1 };
            let id = ContainerId::new(*container).unwrap();
            let last = Sequence::DeleteTransaction.last(&machine.store).unwrap();
            let ranges = vec![Range { first: *first, count: *count }];
            let outcome = machine.run(Command::QueueDeletes { om_sequence: sequence, containers: vec![(id, ranges)] });
            let now = Sequence::DeleteTransaction.last(&machine.store).unwrap();
            let given = (*first..first + count).all(|local| promised.blocks.contains(&(id, local))) && *count > 0;
            if *repeat {
                assert_eq!((outcome.reply, now), (Ok(Reply::Empty), last), "taken over once");
            } else if given {
                assert_eq!((outcome.reply, now), (Ok(Reply::Empty), last + 1));
                promised.deletions.insert(now, id);
                promised.om_sequence = sequence;
            } else {
                assert!(outcome.reply.is_err(), "blocks never handed out");
            }
        }
        Step::Finish { transaction, acked } => {
            let acked = ids(acked);
            machine.run(Command::FinishDeletes { done: vec![(*transaction, acked.clone())] }).reply.unwrap();
            if let Some(id) = promised.deletions.get(transaction) {
                let all = machine.containers()[id].members.iter().all(|member| acked.contains(member));
                if all {
                    promised.deletions.remove(transaction);
                }
            }
        }
        Step::Flush => machine.store.flush().unwrap(),
        Step::Crash { seed } => machine.crash(*seed),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn commands_keep_their_promises_through_crashes(steps in steps()) {
        let (mut machine, mut promised) = (Machine::new(), Promised::default());
        for n in 1..=NODES {
            machine.run(Command::RegisterNode { node: node(n, 0) });
        }
        let mut before = machine.containers();
        for one in &steps {
            step(&mut machine, &mut promised, one);
            let after = machine.containers();
            prop_assert_eq!(invariants::check_state(&machine.store).unwrap(), vec![], "after {:?}", one);
            prop_assert_eq!(invariants::check_step(&before, &after), vec![], "by {:?}", one);
            let kept: Vec<u64> = deleted_block::scan(&machine.store, 0).unwrap().map(|d| d.unwrap().transaction).collect();
            prop_assert_eq!(kept, promised.deletions.keys().copied().collect::<Vec<_>>(), "removed only when all answered");
            before = after;
        }
    }
}

fn allocate(machine: &mut Machine, members: &[u8], count: u32, reserve_bytes: u64) -> Outcome {
    machine.run(Command::AllocateBlocks(AllocateBlocks {
        replication: Replication::Three,
        count,
        reserve_bytes,
        usable: ids(members),
        placements: vec![ids(members); 4],
        container_size: 1000,
        open_target: 2,
    }))
}

fn ranges(outcome: Outcome) -> Vec<super::AllocatedRange> {
    match outcome.reply {
        Ok(Reply::Allocated(ranges)) => ranges,
        other => panic!("{other:?}"),
    }
}

fn three_nodes() -> Machine {
    let mut machine = Machine::new();
    for n in 1..=3 {
        machine.run(Command::RegisterNode { node: node(n, 0) });
    }
    machine
}

#[test]
fn two_containers_take_turns_and_are_spent_by_reservation() {
    let mut machine = three_nodes();
    let mut used = BTreeSet::new();
    for _ in 0..4 {
        for range in ranges(allocate(&mut machine, &[1, 2, 3], 10, 100)) {
            used.insert(range.container.id.get());
        }
    }
    assert_eq!(used, BTreeSet::from([1, 2]), "few containers, filled in turn");
    // 1,600 of 2,000 bytes are free; the request is cut at the containers' sizes and goes on in a third.
    let found = ranges(allocate(&mut machine, &[1, 2, 3], 20, 2000));
    let shares: Vec<(u64, u32, bool)> =
        found.iter().map(|r| (r.container.reserved_bytes, r.count, r.container.spent_ms > 0)).collect();
    assert_eq!(shares, [(1000, 8, true), (1000, 8, true), (400, 4, false)]);
    assert!(
        found.iter().all(|range| range.container.state == ContainerState::Open),
        "its blocks are yet to be written"
    );
    assert!(!ranges(allocate(&mut machine, &[1, 2, 3], 1, 1)).iter().any(|range| range.container.spent_ms > 0));
}

#[test]
fn an_exhausted_container_ends_at_its_last_local_number() {
    let mut machine = three_nodes();
    let id = ranges(allocate(&mut machine, &[1, 2, 3], 1, 1))[0].container.id;
    let before = container::get(&machine.store, id).unwrap().unwrap();
    let mut rows = Batch::new();
    Container { next_local: ozone_common::id::LOCAL_MAX - 1, ..before.clone() }.put(&mut rows, Some(&before));
    machine.apply(rows);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(ranges(allocate(&mut machine, &[1, 2, 3], 5, 5)).into_iter().filter(|r| r.container.id == id));
    }
    let [range] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((range.first_local, range.count), (ozone_common::id::LOCAL_MAX - 1, 2));
    assert!(range.container.spent_ms > 0);
}

#[test]
fn a_restarted_member_closes_its_open_containers_and_a_reconnect_does_not() {
    let mut machine = three_nodes();
    allocate(&mut machine, &[1, 2, 3], 10, 100).reply.unwrap();
    machine.run(Command::RegisterNode { node: Node { data_port: 99, ..node(1, 0) } });
    assert!(machine.containers().values().all(|c| c.state == ContainerState::Open), "the same run, at another port");
    machine.run(Command::RegisterNode { node: node(1, 1) });
    assert!(
        machine
            .containers()
            .values()
            .all(|c| c.state == ContainerState::Closing && c.epoch == 1 && c.members.len() == 3)
    );
    let fresh = ranges(allocate(&mut machine, &[1, 2, 3], 1, 1));
    assert!(fresh[0].container.id.get() > 2, "new ones are opened");
}

#[test]
fn with_two_of_three_nodes_a_container_is_degraded_and_used_no_more_once_three_are_there() {
    let mut machine = three_nodes();
    let degraded = ranges(allocate(&mut machine, &[1, 2], 1, 1))[0].container.clone();
    assert_eq!(degraded.members.len(), 2);
    assert!(ranges(allocate(&mut machine, &[1, 2, 3], 1, 1))[0].container.id > degraded.id);
    let error = allocate(&mut machine, &[1], 1, 1).reply.unwrap_err();
    assert_eq!(error.code, ErrorCode::InsufficientDatanodes);
}

#[test]
fn a_closed_container_loses_no_member_and_a_report_about_an_unknown_epoch_is_refused() {
    let mut machine = three_nodes();
    let id = ranges(allocate(&mut machine, &[1, 2, 3], 1, 1))[0].container.id;
    let report = |machine: &mut Machine, epoch, failed: &[u8]| {
        machine.run(Command::ReportFailedReplicas { container: id, epoch, failed: ids(failed) }).reply
    };
    for epoch in [0, 2] {
        assert_eq!(report(&mut machine, epoch, &[1]).unwrap_err().code, ErrorCode::InvalidArgument);
    }
    machine.run(Command::CloseContainers { containers: vec![id] }).reply.unwrap();
    machine.run(Command::MarkClosed { containers: vec![(id, ids(&[1, 2, 3]))] }).reply.unwrap();
    assert_eq!(machine.containers()[&id].state, ContainerState::Closed);
    assert_eq!(report(&mut machine, 1, &[1]).unwrap_err().code, ErrorCode::ContainerNotOpen);
    assert!(
        matches!(report(&mut machine, 1, &[4]), Ok(Reply::Container(container, _)) if container.members.len() == 3)
    );
    machine.run(Command::DropMember { node: node_id(1), containers: vec![id] }).reply.unwrap();
    assert_eq!(machine.containers()[&id].members.len(), 3, "its repair is another matter");
}
