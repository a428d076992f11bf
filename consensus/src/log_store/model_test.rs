//! The log against a plain model, with the power failing at every write and sync.

use std::collections::VecDeque;

use bytes::Bytes;
use ozone_common::env::SeededRng;
use ozone_common::env::mem_disk::MemDisk;
use proptest::prelude::*;

use super::*;
use crate::core::Payload;

const FOLDER: &str = "/log";
const IDENTITY: Identity = Identity { group: [7; 16], member: MemberId(1) };
/// Small, so that files end and zeros run out often.
const CONFIG: LogConfig = LogConfig { segment_bytes: 1500, zero_ahead_bytes: 512 };

/// What a log holds.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    previous: EntryId,
    entries: VecDeque<Entry>,
    hard_state: HardState,
}

impl Model {
    fn last(&self) -> EntryId {
        self.entries.back().map_or(self.previous, |entry| entry.id)
    }
    fn truncate(&mut self, keep: Index) {
        self.entries.truncate((keep.0 - self.previous.index.0) as usize);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Entries with bodies of these sizes, after taking so many off the end.
    Append {
        replace: usize,
        sizes: Vec<usize>,
        vote: Option<u64>,
    },
    /// Removes files up to an entry, counted from the first.
    Cut(usize),
    /// Starts anew so many entries after the last.
    Reset(u64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = proptest::collection::vec(0usize..700, 0..4);
    let replace = prop_oneof![4 => Just(0usize), 1 => 0usize..4];
    prop_oneof![
        12 => (replace, sizes, proptest::option::of(1u64..4)).prop_map(|(replace, sizes, vote)| Step::Append { replace, sizes, vote }),
        3 => (0usize..20).prop_map(Step::Cut),
        1 => (0u64..3).prop_map(Step::Reset),
        2 => Just(Step::Reopen),
    ]
}

fn open(disk: &MemDisk) -> Result<LogStore, LogError> {
    let (disk, rng) = (Arc::new(disk.clone()), Arc::new(SeededRng::new(1)));
    let folder = Path::new(FOLDER);
    if LogStore::exists(&*disk, folder)? {
        LogStore::open(disk, rng, folder, IDENTITY, CONFIG)
    } else {
        LogStore::create(disk, rng, folder, IDENTITY, CONFIG, EntryId::ZERO)
    }
}

fn read(log: &LogStore) -> Model {
    let entries = log.read(log.previous().index.next(), log.last().index, usize::MAX).unwrap();
    assert_eq!(entries.last().map_or(log.previous(), |entry| entry.id), log.last());
    Model { previous: log.previous(), entries: entries.into(), hard_state: log.hard_state() }
}

/// Carries a step out on both. The models given back are what the log may hold if the step was interrupted: before, between, after.
fn run(log: &mut LogStore, model: &mut Model, step: &Step, term: &mut u64) -> (Result<(), LogError>, Vec<Model>) {
    let mut stages = vec![model.clone()];
    let result = match step {
        Step::Append { replace, sizes, vote } => {
            let replace = (*replace).min(model.entries.len());
            let replace = if sizes.is_empty() { 0 } else { replace };
            if replace > 0 {
                *term += 1;
                let keep = Index(model.last().index.0 - replace as u64);
                model.truncate(keep);
                stages.push(model.clone());
            }
            let first = model.last().index.0 + 1;
            let entries: Vec<Entry> = (first..)
                .zip(sizes)
                .map(|(index, size)| Entry {
                    id: EntryId::new(*term, index),
                    payload: if *size == 0 {
                        Payload::Noop
                    } else {
                        Payload::Data(Bytes::from(vec![(*size % 5) as u8; *size]))
                    },
                })
                .collect();
            let hard_state = vote.map(|vote| HardState { term: Term(*term), vote: Some(MemberId(vote)) });
            model.entries.extend(entries.iter().cloned());
            model.hard_state = hard_state.unwrap_or(model.hard_state);
            log.append(hard_state, &entries)
        }
        Step::Cut(count) => {
            let index = Index(model.previous.index.0 + (*count).min(model.entries.len()) as u64);
            let result = log.cut(index);
            // How far it goes depends on where files end; never beyond the entry.
            for entry in model.entries.clone() {
                if entry.id.index > index {
                    break;
                }
                model.previous = entry.id;
                model.entries.pop_front();
                stages.push(model.clone());
            }
            if result.is_ok() {
                *model = stages.iter().find(|stage| stage.previous == log.previous()).expect("cut to an entry").clone();
                stages.retain(|stage| stage.previous <= model.previous);
            }
            result
        }
        Step::Reset(ahead) => {
            *model = Model {
                previous: EntryId::new(*term, model.last().index.0 + ahead),
                entries: VecDeque::new(),
                hard_state: model.hard_state,
            };
            log.reset(model.previous)
        }
        Step::Reopen => Ok(()),
    };
    stages.push(model.clone());
    (result, stages)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whenever power fails, the log holds what it held before or after the step under way, and goes on from there.
    #[test]
    fn power_may_fail_at_every_write(steps in proptest::collection::vec(step(), 1..14), seed in any::<u64>()) {
        // The faultless run counts nothing; each further one fails one write or sync later, until none fails.
        for writes in [true, false] {
            for limit in 0.. {
                let disk = MemDisk::new();
                let mut log = open(&disk).unwrap();
                let mut model = read(&log);
                let mut term = 1;
                if writes { disk.faults.fail_writes_after(limit) } else { disk.faults.fail_syncs_after(limit) }
                let mut failed = false;
                for step in &steps {
                    if matches!(step, Step::Reopen) {
                        disk.faults.clear();
                        disk.crash(&SeededRng::new(seed ^ limit));
                        log = open(&disk).unwrap();
                    }
                    let (result, stages) = run(&mut log, &mut model, step, &mut term);
                    if result.is_err() {
                        failed = true;
                        disk.faults.clear();
                        if matches!(step, Step::Append { .. }) && !matches!(result, Err(LogError::Full { .. })) && log.poisoned {
                            prop_assert!(matches!(log.append(Some(HardState::default()), &[]), Err(LogError::Poisoned)));
                        }
                        disk.crash(&SeededRng::new(seed ^ limit));
                        log = open(&disk).unwrap();
                        let found = read(&log);
                        prop_assert!(stages.contains(&found), "{step:?} left {found:?}\nnone of {stages:?}");
                        model = found;
                    }
                    prop_assert_eq!(&read(&log), &model);
                }
                disk.faults.clear();
                disk.crash(&SeededRng::new(seed));
                prop_assert_eq!(&read(&open(&disk).unwrap()), &model);
                if !failed && !steps.iter().any(|step| matches!(step, Step::Reopen)) { break; }
                if limit > 60 { break; }
            }
        }
    }

    /// A byte that changes after it was made durable is refused with file and place, or lies where nothing is; never an entry less.
    #[test]
    fn damage_is_refused_and_never_taken_for_a_torn_tail(
        sizes in proptest::collection::vec(1usize..900, 1..8), at in any::<proptest::sample::Index>(), mask in 1u8..,
    ) {
        let disk = MemDisk::new();
        let mut log = open(&disk).unwrap();
        for (index, size) in (1..).zip(&sizes) {
            let payload = Payload::Data(Bytes::from(vec![0xab; *size]));
            log.append(None, &[Entry { id: EntryId::new(1, index), payload }]).unwrap();
        }
        let model = read(&log);
        let end = log.segments.back().unwrap().end();
        let files: Vec<(PathBuf, u64)> = disk.files().into_iter().map(|path| {
            let length = disk.open(&path, false).unwrap().len().unwrap();
            (path, length)
        }).collect();
        let total: u64 = files.iter().map(|(_, length)| length).sum();
        let mut at = at.index(total as usize) as u64;
        let (path, _) = files.iter().find(|(_, length)| if at < *length { true } else { at -= length; false }).unwrap();
        disk.corrupt(path, at, mask);
        match open(&disk) {
            Err(LogError::Damaged { path: named, .. } | LogError::Foreign { path: named, .. }) => prop_assert_eq!(&named, path),
            Err(other) => prop_assert!(false, "{}", other),
            Ok(log) => {
                let unused = at >= 100 && at < format::HEADER_BYTES as u64 || path == files.last().map(|(path, _)| path).unwrap() && at >= end;
                prop_assert!(unused, "byte {at} of {path:?} is in use");
                prop_assert_eq!(read(&log), model);
            }
        }
    }
}

#[test]
fn a_full_disk_is_told_before_anything_is_written() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    let entry = |index| Entry { id: EntryId::new(1, index), payload: Payload::Data(Bytes::from(vec![1; 400])) };
    log.append(None, &[entry(1)]).unwrap();
    disk.faults.set_available(0);
    let error = log.append(None, &[entry(2)]).unwrap_err();
    assert!(matches!(error, LogError::Full { .. }), "{error}");
    disk.faults.clear();
    log.append(None, &[entry(2)]).unwrap();
    disk.crash(&SeededRng::new(1));
    assert_eq!(read(&open(&disk).unwrap()).entries, [entry(1), entry(2)]);
}

#[test]
fn files_of_another_member_or_with_a_gap_are_refused() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    for index in 1..12 {
        let payload = Payload::Data(Bytes::from(vec![1; 400]));
        log.append(None, &[Entry { id: EntryId::new(1, index), payload }]).unwrap();
    }
    assert!(log.segments.len() > 3);
    let other = Identity { member: MemberId(2), ..IDENTITY };
    let folder = Path::new(FOLDER);
    let disk_arc: Arc<dyn Disk> = Arc::new(disk.clone());
    let error = LogStore::open(disk_arc, Arc::new(SeededRng::new(1)), folder, other, CONFIG).err().unwrap();
    assert!(error.to_string().contains("member 0000000000000001 of group 0707"), "{error}");
    disk.remove_file(&segment::path_of(folder, 2)).unwrap();
    let error = open(&disk).err().unwrap();
    assert!(error.to_string().contains("the file before it, 2, is missing"), "{error}");
}

#[test]
fn entries_are_read_within_a_bound_but_one_at_least() {
    let disk = MemDisk::new();
    let mut log = open(&disk).unwrap();
    let entries: Vec<Entry> = (1..=5)
        .map(|index| Entry { id: EntryId::new(1, index), payload: Payload::Data(Bytes::from(vec![index as u8; 100])) })
        .collect();
    log.append(None, &entries).unwrap();
    let check = |from: u64, bytes: usize, count: usize| {
        let found = log.read(Index(from), Index(9), bytes).unwrap();
        assert_eq!(found, entries[from as usize - 1..from as usize - 1 + count]);
    };
    check(1, usize::MAX, 5);
    check(2, 300, 2);
    check(5, 0, 1);
    assert_eq!(log.read(Index(6), Index(9), 100).unwrap(), []);
    assert_eq!(log.term_at(Index(5)), Some(Term(1)));
    assert_eq!(log.term_at(Index(6)), None);
}
