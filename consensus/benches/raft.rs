//! What the protocol itself costs, without disk and network: nanoseconds of CPU of all members together per entry, and per read barrier.
//!
//! `cargo bench -p ozone-consensus --bench raft`

#![allow(missing_docs, reason = "a program")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use ozone_consensus::core::{
    Config, Entry, EntryId, Envelope, HardState, Index, MemberId, Membership, Raft, ReadLog, Restored, SnapshotMark,
};

const ENTRIES: u64 = 200_000;

/// Everything is taken from memory before it leaves it.
struct NoLog;

impl ReadLog for NoLog {
    type Error = Infallible;
    fn read(&self, from: Index, to: Index, _: usize) -> Result<Vec<Entry>, Infallible> {
        panic!("entries {from} to {to} left memory");
    }
}

struct Group {
    members: Vec<Raft>,
    under_way: VecDeque<Envelope>,
    applied: u64,
    reads: u64,
}

impl Group {
    fn new(count: u64) -> Self {
        let beginning = Membership::new((1..=count).map(MemberId), []).expect("a few voters are a group");
        let member = |id| {
            let mark = SnapshotMark::beginning(beginning.clone());
            let restored = Restored::new(HardState::default(), mark, Index::ZERO, EntryId::ZERO);
            Raft::new(Config::of(MemberId(id), id), restored, Duration::ZERO).expect("an empty state is whole")
        };
        let mut group =
            Self { members: (1..=count).map(member).collect(), under_way: VecDeque::new(), applied: 0, reads: 0 };
        group.members[0].tick(Duration::from_secs(10));
        group.settle();
        group
    }

    fn settle(&mut self) {
        loop {
            for raft in &mut self.members {
                loop {
                    let Ok(output) = raft.output(&NoLog);
                    let Ok(committed) = raft.take_committed(usize::MAX, &NoLog);
                    if output.is_empty() && committed.is_empty() {
                        break;
                    }
                    self.applied += committed.len() as u64;
                    self.reads += output.reads.len() as u64;
                    if let Some(last) = committed.last() {
                        raft.snapshot_taken(last.id.index);
                        raft.cut_log(last.id.index);
                    }
                    raft.persisted(output.number);
                    self.under_way.extend(output.messages);
                }
            }
            if self.under_way.is_empty() {
                return;
            }
            for envelope in std::mem::take(&mut self.under_way) {
                self.members[envelope.to.0 as usize - 1].step(envelope.message);
            }
        }
    }
}

/// CPU of this thread: other work on the machine does not count.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() {
    println!("| members | per turn | ns per entry | ns per read barrier |\n| --- | --- | --- | --- |");
    for members in [1, 3, 5] {
        for turn in [1, 16] {
            let mut group = Group::new(members);
            let data = Bytes::from(vec![7; 8 << 10]);
            let started = cpu();
            for _ in 0..ENTRIES / turn {
                for _ in 0..turn {
                    group.members[0].propose(data.clone()).expect("it leads, and everything before is committed");
                }
                group.settle();
            }
            let per_entry = (cpu() - started).as_nanos() / u128::from(ENTRIES);
            let started = cpu();
            for _ in 0..ENTRIES / turn {
                for _ in 0..turn {
                    group.members[0].read_barrier().expect("it leads, and no other read waits");
                }
                group.settle();
            }
            let per_read = (cpu() - started).as_nanos() / u128::from(ENTRIES);
            assert_eq!(
                group.applied,
                members * (ENTRIES + 1),
                "every member applied every entry and the leader's first"
            );
            assert_eq!(group.reads, ENTRIES, "every barrier was granted");
            println!("| {members} | {turn} | {per_entry} | {per_read} |");
        }
    }
}
