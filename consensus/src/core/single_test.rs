//! A group of one: what every laptop runs.

use std::time::Duration;

use bytes::Bytes;

use super::test_support::{Disk, Peer};
use super::*;

fn start(disk: Disk, config: Config) -> Peer {
    let mark = SnapshotMark::beginning(Membership::single(config.id));
    Peer::start(config, disk, mark, Index::ZERO, Duration::ZERO)
}

/// A member that does not lead yet.
fn new() -> Peer {
    start(Disk::default(), Config::of(MemberId(7), 1))
}

/// A member that leads.
fn leader() -> Peer {
    let mut peer = new();
    assert!(peer.turn().is_empty(), "there is nobody to talk to");
    peer
}

#[test]
fn it_leads_at_once_and_commits_what_it_has_persisted() {
    let mut peer = new();
    assert_eq!(peer.raft.role(), Role::Candidate);
    peer.turn();
    assert_eq!(peer.raft.role(), Role::Leader { term: Term(1), noop: Index(1) });
    assert_eq!(peer.applied, [Entry { id: EntryId::new(1, 1), payload: Payload::Noop }]);
    assert_eq!(peer.raft.next_due(), None, "a leader alone never needs to wake up");

    let ids = ["one", "two"].map(|text| peer.raft.propose(Bytes::from(text)).unwrap());
    let output = peer.raft.output(&peer.disk).unwrap();
    assert_eq!(output.append.len(), 2, "two proposals, one write");
    assert!(peer.raft.take_committed(usize::MAX, &peer.disk).unwrap().is_empty(), "not before it is persisted");
    peer.disk.write(&output);
    peer.raft.persisted(output.number);
    let applied = peer.raft.take_committed(usize::MAX, &peer.disk).unwrap();
    assert_eq!(applied.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids);
    assert_eq!(applied[1].payload, Payload::Data(Bytes::from("two")));
}

#[test]
fn a_restart_brings_back_what_was_persisted() {
    let mut peer = leader();
    peer.raft.propose(Bytes::from("kept")).unwrap();
    peer.turn();
    peer.raft.propose(Bytes::from("lost")).unwrap();
    let mut peer = start(peer.disk, Config::of(MemberId(7), 2));
    peer.turn();
    assert_eq!(peer.raft.role(), Role::Leader { term: Term(2), noop: Index(3) });
    assert_eq!(peer.data(), [b"kept"]);
    assert_eq!(peer.applied.len(), 3);
}

#[test]
fn proposals_are_bounded_by_what_waits() {
    let mut peer = start(Disk::default(), Config { uncommitted_bytes_max: 100, ..Config::of(MemberId(7), 1) });
    assert_eq!(peer.raft.propose(Bytes::new()), Err(Refused::NotLeader { leader: None }));
    peer.turn();
    peer.raft.propose(Bytes::from(vec![0; 1000])).expect("one that is too large is taken alone");
    assert!(matches!(peer.raft.propose(Bytes::new()), Err(Refused::Uncommitted { max: 100, .. })));
    peer.turn();
    peer.raft.propose(Bytes::new()).expect("there is room again");
}

#[test]
fn reads_wait_for_the_first_entry_of_the_term_only() {
    let mut peer = new();
    let output = peer.raft.output(&peer.disk).unwrap();
    peer.disk.write(&output);
    peer.raft.persisted(output.number);
    let read = peer.raft.read_barrier().unwrap();
    let output = peer.raft.output(&peer.disk).unwrap();
    assert!(output.reads.is_empty(), "what predecessors committed is not known yet");
    peer.disk.write(&output);
    peer.raft.persisted(output.number);
    let reads = peer.raft.output(&peer.disk).unwrap().reads;
    assert_eq!(reads, [ReadDone { id: read, index: Some(Index(1)) }]);
    let read = peer.raft.read_barrier().unwrap();
    assert_eq!(peer.raft.output(&peer.disk).unwrap().reads, [ReadDone { id: read, index: Some(Index(1)) }]);
}

#[test]
fn reads_are_bounded() {
    let mut peer = start(Disk::default(), Config { reads_max: 2, ..Config::of(MemberId(7), 1) });
    assert_eq!(peer.raft.read_barrier(), Err(Refused::NotLeader { leader: None }));
    peer.turn();
    peer.raft.read_barrier().unwrap();
    peer.raft.read_barrier().unwrap();
    assert_eq!(peer.raft.read_barrier(), Err(Refused::Reads { max: 2 }));
    peer.turn();
    assert_eq!(peer.reads.len(), 2);
    peer.raft.read_barrier().unwrap();
}

#[test]
fn the_log_is_read_where_memory_has_forgotten_it() {
    let mut peer = start(Disk::default(), Config { cache_bytes_max: 0, ..Config::of(MemberId(7), 1) });
    peer.turn();
    peer.raft.propose(Bytes::from("far")).unwrap();
    peer.raft.propose(Bytes::from("away")).unwrap();
    peer.turn();
    assert_eq!(peer.data(), [&b"far"[..], b"away"]);
}

#[test]
fn a_snapshot_lets_the_log_be_cut() {
    let mut peer = leader();
    peer.raft.propose(Bytes::from("one")).unwrap();
    peer.turn();
    let mark = peer.raft.snapshot_taken(Index(2));
    assert_eq!(mark, SnapshotMark { last: EntryId::new(1, 2), members: Membership::single(MemberId(7)) });
    assert_eq!(peer.raft.snapshot_taken(Index(1)), mark, "an older one changes nothing");
    peer.raft.cut_log(Index(2));
    assert_eq!(peer.raft.status().cut, mark.last);
    peer.raft.propose(Bytes::from("two")).unwrap();
    peer.turn();
    assert_eq!(peer.data(), [b"one", b"two"]);
}

#[test]
fn a_disk_slower_than_the_timeout_ends_an_election_all_the_same() {
    let mut peer = new();
    peer.disk_hangs = true;
    peer.turn();
    for second in 1..10 {
        peer.raft.tick(Duration::from_secs(second * 5));
        assert!(peer.raft.output(&peer.disk).unwrap().is_empty());
    }
    peer.raft.persisted(peer.written);
    assert!(matches!(peer.raft.role(), Role::Leader { term: Term(1), .. }));
}

#[test]
fn entries_of_a_term_that_the_hard_state_lost_raise_the_term() {
    let mut peer = leader();
    peer.disk.hard = HardState::default();
    let peer = start(peer.disk, Config::of(MemberId(7), 2));
    assert_eq!(peer.raft.term(), Term(2));
}
