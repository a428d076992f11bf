//! A group of one: what every laptop runs.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;

use super::*;

/// A log in memory; what it holds is durable.
#[derive(Default)]
struct Disk {
    hard: HardState,
    entries: Vec<Entry>,
}

impl ReadLog for Disk {
    type Error = Infallible;
    fn read(&self, from: Index, to: Index, _: usize) -> Result<Vec<Entry>, Infallible> {
        Ok(self.entries.iter().filter(|entry| (from..=to).contains(&entry.id.index)).cloned().collect())
    }
}

impl Disk {
    fn start(&self, config: Config) -> Raft {
        let mark = SnapshotMark::beginning(Membership::single(config.id));
        let mut restored = Restored::new(self.hard, mark, Index::ZERO, EntryId::ZERO);
        self.entries.iter().for_each(|entry| restored.entry(entry).unwrap());
        Raft::new(config, restored, Duration::ZERO).unwrap()
    }

    fn write(&mut self, output: &Output) {
        self.hard = output.hard_state.unwrap_or(self.hard);
        if let Some(first) = output.append.first() {
            self.entries.retain(|entry| entry.id.index < first.id.index);
        }
        self.entries.extend(output.append.iter().cloned());
    }

    /// Carries out outputs until there are none; gives what became ready to apply.
    fn settle(&mut self, raft: &mut Raft) -> Vec<Entry> {
        let mut applied = Vec::new();
        loop {
            let output = raft.output(self).unwrap();
            let committed = raft.take_committed(usize::MAX, self).unwrap();
            if output.is_empty() && committed.is_empty() {
                return applied;
            }
            self.write(&output);
            raft.persisted(output.number);
            applied.extend(committed);
        }
    }
}

fn data(text: &'static str) -> Payload {
    Payload::Data(Bytes::from_static(text.as_bytes()))
}

#[test]
fn it_leads_at_once_and_commits_what_it_has_persisted() {
    let mut disk = Disk::default();
    let mut raft = disk.start(Config::of(MemberId(7), 1));
    assert_eq!(raft.role(), Role::Candidate);
    let applied = disk.settle(&mut raft);
    assert_eq!(raft.role(), Role::Leader { term: Term(1), noop: Index(1) });
    assert_eq!(applied, [Entry { id: EntryId::new(1, 1), payload: Payload::Noop }]);
    assert_eq!(raft.next_due(), None, "a leader alone never needs to wake up");

    let ids = ["one", "two"].map(|text| raft.propose(Bytes::from(text)).unwrap());
    let output = raft.output(&disk).unwrap();
    assert_eq!(output.append.len(), 2, "two proposals, one write");
    assert!(raft.take_committed(usize::MAX, &disk).unwrap().is_empty(), "not before it is persisted");
    disk.write(&output);
    raft.persisted(output.number);
    let applied = raft.take_committed(usize::MAX, &disk).unwrap();
    assert_eq!(applied.iter().map(|entry| entry.id).collect::<Vec<_>>(), ids);
    assert_eq!(applied[1].payload, data("two"));
}

#[test]
fn a_restart_brings_back_what_was_persisted() {
    let mut disk = Disk::default();
    let mut raft = disk.start(Config::of(MemberId(7), 1));
    disk.settle(&mut raft);
    raft.propose(Bytes::from("kept")).unwrap();
    disk.settle(&mut raft);
    raft.propose(Bytes::from("lost")).unwrap();
    let mut raft = disk.start(Config::of(MemberId(7), 2));
    let applied = disk.settle(&mut raft);
    assert_eq!(raft.role(), Role::Leader { term: Term(2), noop: Index(3) });
    assert_eq!(
        applied.into_iter().map(|entry| entry.payload).collect::<Vec<_>>(),
        [Payload::Noop, data("kept"), Payload::Noop]
    );
}

#[test]
fn proposals_are_bounded_by_what_waits() {
    let config = Config { uncommitted_bytes_max: 100, ..Config::of(MemberId(7), 1) };
    let mut disk = Disk::default();
    let mut raft = disk.start(config);
    assert_eq!(raft.propose(Bytes::new()), Err(Refused::NotLeader { leader: None }));
    disk.settle(&mut raft);
    raft.propose(Bytes::from(vec![0; 1000])).expect("one that is too large is taken alone");
    assert!(matches!(raft.propose(Bytes::new()), Err(Refused::Uncommitted { max: 100, .. })));
    disk.settle(&mut raft);
    raft.propose(Bytes::new()).expect("there is room again");
}

#[test]
fn reads_wait_for_the_first_entry_of_the_term_only() {
    let mut disk = Disk::default();
    let mut raft = disk.start(Config::of(MemberId(7), 1));
    let output = raft.output(&disk).unwrap();
    disk.write(&output);
    raft.persisted(output.number);
    let read = raft.read_barrier().unwrap();
    let output = raft.output(&disk).unwrap();
    assert!(output.reads.is_empty(), "what predecessors committed is not known yet");
    disk.write(&output);
    raft.persisted(output.number);
    let reads = raft.output(&disk).unwrap().reads;
    assert_eq!(reads, [ReadDone { id: read, index: Some(Index(1)) }]);
    let read = raft.read_barrier().unwrap();
    assert_eq!(raft.output(&disk).unwrap().reads, [ReadDone { id: read, index: Some(Index(1)) }]);
}

#[test]
fn the_log_is_read_where_memory_has_forgotten_it() {
    let config = Config { cache_bytes_max: 0, ..Config::of(MemberId(7), 1) };
    let mut disk = Disk::default();
    let mut raft = disk.start(config);
    disk.settle(&mut raft);
    raft.propose(Bytes::from("far")).unwrap();
    raft.propose(Bytes::from("away")).unwrap();
    let applied = disk.settle(&mut raft);
    assert_eq!(applied.into_iter().map(|entry| entry.payload).collect::<Vec<_>>(), [data("far"), data("away")]);
}

#[test]
fn a_snapshot_lets_the_log_be_cut() {
    let mut disk = Disk::default();
    let mut raft = disk.start(Config::of(MemberId(7), 1));
    disk.settle(&mut raft);
    raft.propose(Bytes::from("one")).unwrap();
    disk.settle(&mut raft);
    let mark = raft.snapshot_taken(Index(2));
    assert_eq!(mark, SnapshotMark { last: EntryId::new(1, 2), members: Membership::single(MemberId(7)) });
    raft.cut_log(Index(2));
    assert_eq!(raft.status().cut, mark.last);
    raft.propose(Bytes::from("two")).unwrap();
    assert_eq!(disk.settle(&mut raft).len(), 1);
}

#[test]
fn a_disk_slower_than_the_timeout_ends_an_election_all_the_same() {
    let disk = Disk::default();
    let mut raft = disk.start(Config::of(MemberId(7), 1));
    let output = raft.output(&disk).unwrap();
    for second in 1..10 {
        raft.tick(Duration::from_secs(second * 5));
        assert!(raft.output(&disk).unwrap().is_empty());
    }
    raft.persisted(output.number);
    assert!(matches!(raft.role(), Role::Leader { term: Term(1), .. }));
}
