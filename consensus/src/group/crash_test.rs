//! A group whose power fails anywhere: between any two of append, sync, store write, store flush, snapshot and cut.
//!
//! Every call adds a bit of its own to a counter, so the counter tells which calls had effect, and that none had it twice: a second addition
//! would carry. What must hold after every start: all answered calls are in, nothing is in that was not called, no number was given to
//! two commands, and a repeated call gets the answer it got before.

use std::collections::BTreeMap;

use bytes::Bytes;
use ozone_common::env::{Disk, Rng, SeededRng};
use ozone_common::id::ClientId;
use proptest::prelude::*;

use super::member::Member;
use super::test_support::*;
use crate::call::Call;

/// Bits of one counter in use: the next addition must not carry out of it.
const BITS: u64 = 60;

#[derive(Clone, Debug)]
enum Step {
    /// So many new calls, and so many repeats, in one turn.
    Turn { fresh: usize, repeats: usize, fill: usize },
    /// The store decides to make durable what it has.
    Flush,
    /// After so many more writes or syncs the disk fails.
    Fail { writes: bool, after: u64 },
    /// Power fails now. The store may be lost altogether.
    Crash { lose_store: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0usize..5, 0usize..3, 0usize..250).prop_map(|(fresh, repeats, fill)| Step::Turn { fresh, repeats, fill }),
        1 => Just(Step::Flush),
        3 => (any::<bool>(), 0u64..25).prop_map(|(writes, after)| Step::Fail { writes, after }),
        1 => (0u8..4).prop_map(|kind| Step::Crash { lose_store: kind == 0 }),
    ]
}

/// A caller, and what it knows.
struct Caller {
    client: ClientId,
    next: u64,
    /// Bit by sequence.
    calls: BTreeMap<u64, u64>,
    unanswered: Vec<u64>,
    answers: BTreeMap<u64, Bytes>,
}

struct Run {
    world: World,
    rng: SeededRng,
    member: Option<Member<Counters>>,
    caller: Caller,
    /// Numbers of answered commands.
    numbers: BTreeMap<u64, u64>,
    counters: u8,
    crashes: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new(small());
        let caller = Caller {
            client: world.client(),
            next: 1,
            calls: BTreeMap::new(),
            unanswered: Vec::new(),
            answers: BTreeMap::new(),
        };
        let mut run = Self {
            world,
            rng: SeededRng::new(seed),
            member: None,
            caller,
            numbers: BTreeMap::new(),
            counters: 0,
            crashes: 0,
        };
        run.start();
        run
    }

    /// Starts the member, perhaps after starts that power interrupts.
    fn start(&mut self) {
        self.member = None;
        for attempt in 0.. {
            if attempt < 3 && self.rng.below(3) == 0 {
                let after = self.rng.below(12);
                let faults = &self.world.disk.faults;
                if self.rng.below(2) == 0 { faults.fail_writes_after(after) } else { faults.fail_syncs_after(after) }
            }
            let opened = self.world.open();
            self.world.disk.faults.clear();
            match opened {
                Ok(member) => {
                    self.member = Some(member);
                    break;
                }
                Err(error) if attempt >= 3 => panic!("does not start on a disk without faults: {error}"),
                Err(_) => self.world.crash(&self.rng),
            }
        }
        self.check();
    }

    fn crash(&mut self, lose_store: bool) {
        self.crashes += 1;
        self.member = None;
        self.world.crash(&self.rng);
        if lose_store {
            let folder = self.world.config().folder.join("store");
            self.world.disk.remove_dir_all(&folder).unwrap();
            *self.world.opener.store.lock() = None;
        }
        self.start();
    }

    fn check(&self) {
        let store = self.member.as_ref().expect("it runs").store().clone();
        let found = all(&*store);
        for (sequence, bit) in &self.caller.calls {
            let (counter, mask) = ((bit / BITS) as u8, 1 << (bit % BITS));
            let has = found.get(&counter).copied().unwrap_or(0) & mask != 0;
            assert!(has || !self.caller.answers.contains_key(sequence), "call {sequence} was answered and is gone");
        }
        for (counter, value) in found {
            let called = self.caller.calls.values().filter(|bit| *bit / BITS == u64::from(counter));
            let called = called.fold(0u64, |sum, bit| sum | 1 << (bit % BITS));
            assert_eq!(value & !called, 0, "counter {counter} has what nobody called for");
        }
    }

    fn call(&self, sequence: u64, fill: usize) -> (Option<Call>, Command) {
        let bit = self.caller.calls[&sequence];
        let lowest_unanswered = self.caller.unanswered.first().copied().unwrap_or(self.caller.next).min(sequence);
        let call = Call { client: self.caller.client, sequence, lowest_unanswered };
        (Some(call), Command::Add { name: (bit / BITS) as u8, by: 1 << (bit % BITS), fill })
    }

    fn turn(&mut self, fresh: usize, repeats: usize, fill: usize) {
        let mut sequences = Vec::new();
        for _ in 0..repeats {
            // Whoever repeats a call does not know its answer, or asks again before it says so.
            let known: Vec<u64> = self.caller.unanswered.clone();
            if let Some(sequence) = known.get(self.rng.below(known.len().max(1) as u64) as usize) {
                sequences.push(*sequence);
            }
        }
        for _ in 0..fresh {
            let sequence = self.caller.next;
            self.caller.next += 1;
            let bit = self.caller.calls.len() as u64;
            self.counters = (bit / BITS) as u8;
            self.caller.calls.insert(sequence, bit);
            self.caller.unanswered.push(sequence);
            sequences.push(sequence);
        }
        let commands = sequences.iter().map(|sequence| self.call(*sequence, fill)).collect();
        let member = self.member.as_mut().expect("it runs");
        // A snapshot takes as long as some turns.
        let inbox = member.inbox().clone();
        let late = if self.rng.below(4) == 0 { None } else { inbox.take(false, None).snapshot };
        let (result, mut answers) = turn(member, commands);
        late.into_iter().for_each(|taken| inbox.snapshot(taken));
        let mut answered_now = Vec::new();
        for (sequence, answer) in sequences.into_iter().zip(&mut answers) {
            if let Some(Ok(reply)) = answered(answer) {
                answered_now.push((sequence, reply));
            }
        }
        for (sequence, reply) in answered_now {
            let first = self.caller.answers.entry(sequence).or_insert_with(|| reply.clone());
            assert_eq!(*first, reply, "call {sequence} was answered twice, and differently");
            let number = u64::from_be_bytes(reply[8..].try_into().unwrap());
            let owner = self.numbers.entry(number).or_insert(sequence);
            assert_eq!(*owner, sequence, "number {number} was given to two calls");
            // Now and then the answer is lost on its way, and the call is repeated later.
            if self.rng.below(4) != 0 {
                self.caller.unanswered.retain(|unanswered| *unanswered != sequence);
            }
        }
        if result.is_err() {
            self.crash(false);
        }
        self.check();
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Turn { fresh, repeats, fill } => self.turn(*fresh, *repeats, *fill),
                Step::Flush => self.member.as_ref().expect("it runs").store().flush().unwrap(),
                Step::Fail { writes: true, after } => self.world.disk.faults.fail_writes_after(*after),
                Step::Fail { writes: false, after } => self.world.disk.faults.fail_syncs_after(*after),
                Step::Crash { lose_store } => self.crash(*lose_store),
            }
        }
        // In the end every call gets its answer.
        self.world.disk.faults.clear();
        for _ in 0..200 {
            if self.caller.unanswered.is_empty() {
                break;
            }
            self.turn(0, 3, 0);
        }
        assert_eq!(self.caller.unanswered, [], "every call is answered on a disk without faults");
        self.crash(false);
        let found: u32 =
            all(&**self.member.as_ref().expect("it runs").store()).values().map(|sum| sum.count_ones()).sum();
        assert_eq!(found as usize, self.caller.calls.len(), "every call is in once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn every_answered_call_is_in_once_whenever_power_fails(steps in proptest::collection::vec(step(), 1..60), seed in any::<u64>()) {
        Run::new(seed).run(&steps);
    }
}

/// One history that appends, syncs, flushes, takes snapshots and cuts, stopped after each write and after each sync.
#[test]
fn stopped_between_any_two_durable_effects() {
    let turn = |fill| Step::Turn { fresh: 2, repeats: 1, fill };
    for writes in [true, false] {
        let mut stops = 0;
        for after in 0.. {
            let mut steps = vec![Step::Fail { writes, after }];
            for number in 0..40 {
                steps.push(turn(number * 5));
                if number % 11 == 5 {
                    steps.push(Step::Flush);
                }
            }
            let mut run = Run::new(after);
            run.run(&steps);
            let snapshots = run.world.disk.list(&run.world.config().folder.join("snapshots")).unwrap();
            assert!(snapshots.iter().any(|name| name != "new"), "the history is long enough for snapshots");
            // The last crash is at the end of every history; without another the fault lay behind it.
            if run.crashes == 1 {
                break;
            }
            stops += 1;
        }
        assert!(stops > 60, "only {stops} places to stop at");
    }
}
