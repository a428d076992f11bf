//! A group in one thread: disks that are durable at once unless told, a network that delivers at once unless cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;

use super::*;

/// A log in memory; what it holds is durable.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) hard: HardState,
    pub(super) cut: EntryId,
    pub(super) entries: Vec<Entry>,
}

impl ReadLog for Disk {
    type Error = Infallible;
    fn read(&self, from: Index, to: Index, _: usize) -> Result<Vec<Entry>, Infallible> {
        Ok(self.entries.iter().filter(|entry| (from..=to).contains(&entry.id.index)).cloned().collect())
    }
}

impl Disk {
    pub(super) fn write(&mut self, output: &Output) {
        self.hard = output.hard_state.unwrap_or(self.hard);
        if let Some(mark) = &output.install {
            self.entries.clear();
            self.cut = mark.last;
        }
        if let Some(first) = output.append.first() {
            self.entries.retain(|entry| entry.id.index < first.id.index);
        }
        self.entries.extend(output.append.iter().cloned());
    }
}

/// A member on its disk.
pub(super) struct Peer {
    pub(super) raft: Raft,
    pub(super) disk: Disk,
    /// Everything applied.
    pub(super) applied: Vec<Entry>,
    /// All answers to read barriers.
    pub(super) reads: Vec<ReadDone>,
    /// All snapshots it was asked to fetch.
    pub(super) fetches: Vec<Fetch>,
    /// Outputs are written but not synced while this is set.
    pub(super) disk_hangs: bool,
    /// The last output written.
    pub(super) written: u64,
}

impl Peer {
    /// A member of a new group.
    pub(super) fn new(config: Config, beginning: &Membership) -> Self {
        Self::start(config, Disk::default(), SnapshotMark::beginning(beginning.clone()), Index::ZERO, Duration::ZERO)
    }

    /// A member with what is on its disk.
    pub(super) fn start(config: Config, disk: Disk, mark: SnapshotMark, applied: Index, now: Duration) -> Self {
        let mut restored = Restored::new(disk.hard, mark, applied, disk.cut);
        disk.entries.iter().for_each(|entry| restored.entry(entry).unwrap());
        let raft = Raft::new(config, restored, now).unwrap();
        let (applied, reads, fetches) = (Vec::new(), Vec::new(), Vec::new());
        Self { raft, disk, applied, reads, fetches, disk_hangs: false, written: 0 }
    }

    /// Carries out outputs until there are none; gives the messages to send.
    pub(super) fn turn(&mut self) -> Vec<Envelope> {
        let mut messages = Vec::new();
        loop {
            let output = self.raft.output(&self.disk).unwrap();
            let committed = self.raft.take_committed(usize::MAX, &self.disk).unwrap();
            invariants::own_order(&self.raft).unwrap();
            if output.is_empty() && committed.is_empty() {
                return messages;
            }
            self.disk.write(&output);
            self.written = output.number;
            self.applied.extend(committed);
            self.reads.extend(output.reads);
            self.fetches.extend(output.fetch);
            messages.extend(output.messages);
            if !self.disk_hangs {
                self.raft.persisted(self.written);
            }
        }
    }

    /// What was applied of clients' data.
    pub(super) fn data(&self) -> Vec<&[u8]> {
        self.applied
            .iter()
            .filter_map(|entry| match &entry.payload {
                Payload::Data(data) => Some(&data[..]),
                Payload::Noop | Payload::Members(_) => None,
            })
            .collect()
    }
}

/// Members and the network between them.
pub(super) struct Group {
    pub(super) peers: BTreeMap<u64, Peer>,
    pub(super) beginning: Membership,
    /// Members that nobody hears and that hear nobody.
    pub(super) cut_off: BTreeSet<u64>,
    pub(super) now: Duration,
    under_way: VecDeque<Envelope>,
    /// All that was delivered.
    pub(super) delivered: Vec<Envelope>,
    record: invariants::Record,
}

pub(super) const ELECTION: Duration = Duration::from_millis(1000);

impl Group {
    /// Members 1 to `count`, all voters.
    pub(super) fn new(count: u64) -> Self {
        let beginning = Membership::new((1..=count).map(MemberId), []).unwrap();
        let peers = (1..=count).map(|id| (id, Peer::new(Config::of(MemberId(id), id), &beginning))).collect();
        Self {
            peers,
            beginning,
            cut_off: BTreeSet::new(),
            now: Duration::ZERO,
            under_way: VecDeque::new(),
            delivered: Vec::new(),
            record: invariants::Record::default(),
        }
    }

    /// The same, with member 1 leading.
    pub(super) fn led_by_one(count: u64) -> Self {
        let mut group = Self::new(count);
        group.elect(1);
        group
    }

    pub(super) fn raft(&mut self, id: u64) -> &mut Raft {
        &mut self.peers.get_mut(&id).unwrap().raft
    }

    pub(super) fn peer(&mut self, id: u64) -> &mut Peer {
        self.peers.get_mut(&id).unwrap()
    }

    /// So much time passes in silence that `id` seeks election; the others would have waited longer.
    pub(super) fn lose_patience(&mut self, id: u64) {
        self.now += ELECTION * 2;
        let now = self.now;
        for (other, peer) in &mut self.peers {
            if *other != id {
                peer.raft.now = now;
                peer.raft.put_off_election();
            }
        }
        self.raft(id).tick(now);
    }

    /// Lets `id` lose patience, and win.
    pub(super) fn elect(&mut self, id: u64) {
        self.lose_patience(id);
        self.settle();
        assert!(self.leads(id), "member {id} is {:?}", self.raft(id).role());
    }

    pub(super) fn leads(&self, id: u64) -> bool {
        matches!(self.peers[&id].raft.role(), Role::Leader { .. })
    }

    /// Takes the outputs of all members.
    pub(super) fn collect(&mut self) {
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            let messages = self.peer(id).turn();
            self.under_way.extend(messages.into_iter().filter(|_| !self.cut_off.contains(&id)));
            let others: Vec<&Raft> =
                self.peers.iter().filter(|(other, _)| **other != id).map(|(_, peer)| &peer.raft).collect();
            self.record.check(&self.peers[&id].raft, &others).unwrap();
        }
    }

    /// Carries out outputs and delivers messages until nothing happens any more.
    pub(super) fn settle(&mut self) {
        self.collect();
        while self.deliver_next().is_some() {
            self.collect();
        }
    }

    /// Delivers the oldest message, or loses it where a link is cut.
    pub(super) fn deliver_next(&mut self) -> Option<Envelope> {
        let envelope = self.under_way.pop_front()?;
        let (from, to) = (envelope.message.from.0, envelope.to.0);
        if self.peers.contains_key(&to) && !self.cut_off.contains(&to) && !self.cut_off.contains(&from) {
            self.delivered.push(envelope.clone());
            self.raft(to).step(envelope.message.clone());
        }
        Some(envelope)
    }

    /// Messages under way are lost.
    pub(super) fn lose_messages(&mut self) {
        self.collect();
        self.under_way.clear();
    }

    /// Lets time pass in small steps.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(50);
            let now = self.now;
            self.peers.values_mut().for_each(|peer| peer.raft.tick(now));
            self.settle();
        }
    }

    pub(super) fn propose(&mut self, id: u64, data: &'static str) -> EntryId {
        self.raft(id).propose(Bytes::from(data)).unwrap()
    }

    /// What was delivered since the last call, of one kind.
    pub(super) fn delivered(&mut self, kind: impl Fn(&Body) -> bool) -> usize {
        let delivered = std::mem::take(&mut self.delivered);
        delivered.iter().filter(|envelope| kind(&envelope.message.body)).count()
    }

    /// Starts a member again on what its disk has.
    pub(super) fn restart(&mut self, id: u64) {
        let peer = self.peers.remove(&id).unwrap();
        let mark = SnapshotMark::beginning(self.beginning.clone());
        let peer = Peer::start(Config::of(MemberId(id), id + 100), peer.disk, mark, Index::ZERO, self.now);
        self.peers.insert(id, peer);
    }
}
