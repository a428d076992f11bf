//! Clients: write and read at any member that runs, knowing nothing of who leads.

use anyhow::Result;
use bytes::Bytes;

use super::world::{Event, World};

impl World {
    pub(super) fn client(&mut self) -> Result<()> {
        let again = self.dice.between(1_000, self.profile.client_us_max);
        self.after(again, Event::Client);
        // Mostly the leader, as clients learn; now and then anybody, as clients err.
        let leaders = self.leaders();
        let whom = if leaders.is_empty() || self.dice.chance(200) { self.running() } else { leaders };
        let Some(id) = self.dice.pick(&whom) else { return Ok(()) };
        for _ in 0..self.dice.between(1, 4) {
            let (reads, length) = (self.dice.chance(400), self.dice.below(60) as usize);
            let floor = self.oracle.floor();
            let write = self.writes_begun + 1;
            let Some(process) = self.process(id) else { break };
            if reads {
                if let Ok(read) = process.raft.read_barrier() {
                    process.barriers.insert(read, floor);
                }
                continue;
            }
            let mut data = write.to_le_bytes().to_vec();
            data.resize(8 + length, 0);
            if let Ok(entry) = process.raft.propose(Bytes::from(data)) {
                process.writes.insert(entry, (write, floor));
                self.writes_begun = write;
                self.trace.note(self.now_us, "propose", &[id.0, entry.term.0, entry.index.0, write]);
            }
        }
        self.turn(id)
    }
}
