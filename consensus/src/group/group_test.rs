//! What a group promises, case by case.

use ozone_common::id::ClientId;

use super::test_support::*;
use super::*;
use crate::group::inbox::Arrived;

fn add(name: u8, by: u64) -> Command {
    Command::Add { name, by, fill: 0 }
}

fn call(client: ClientId, sequence: u64, lowest_unanswered: u64) -> Option<Call> {
    Some(Call { client, sequence, lowest_unanswered })
}

/// Runs commands in one turn and gives their answers, which must all be there.
fn run(member: &mut member::Member<Counters>, commands: Vec<(Option<Call>, Command)>) -> Vec<Result<Bytes, Error>> {
    let (result, mut answers) = turn(member, commands);
    result.unwrap();
    answers.iter_mut().map(|answer| answered(answer).expect("answered in its turn")).collect()
}

#[test]
fn commands_of_one_turn_see_each_other_and_make_one_entry() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    let before = world.position().unwrap();
    let commands =
        vec![(None, add(1, 5)), (None, add(1, 2)), (None, Command::Expect { name: 1, value: 7 }), (None, add(2, 1))];
    let answers = run(&mut member, commands);
    assert_eq!(answers, [Ok(reply(5, 1)), Ok(reply(7, 2)), Ok(reply(7, 0)), Ok(reply(1, 3))]);
    let after = world.position().unwrap();
    assert_eq!((after.index().0, after.sequence), (before.index().0 + 1, 3));
    assert_eq!(*world.hints.lock(), [Added(1), Added(1), Added(2)]);
    assert_eq!(all(&**member.store()), [(1, 7), (2, 1)].into());
    let answers = run(&mut member, vec![(None, Command::Clear), (None, add(1, 1))]);
    assert_eq!(answers, [Ok(reply(0, 4)), Ok(reply(1, 5))]);
    assert_eq!(all(&**member.store()), [(1, 1)].into());
}

#[test]
fn refusals_leave_nothing_and_numbers_go_on_without_gaps() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    let client = world.client();
    let before = world.position().unwrap();
    let refused = run(&mut member, vec![(call(client, 1, 1), Command::Expect { name: 1, value: 9 })]);
    assert_eq!(refused[0].as_ref().unwrap_err().code, ErrorCode::PreconditionFailed);
    assert_eq!(world.position().unwrap(), before);
    assert_eq!(run(&mut member, vec![(call(client, 2, 1), add(1, 1))]), [Ok(reply(1, 1))]);
    // The refused call had no effect, so its repeat is executed.
    let again = run(&mut member, vec![(call(client, 1, 1), Command::Expect { name: 1, value: 1 })]);
    assert_eq!(again, [Ok(reply(1, 0))]);
}

#[test]
fn a_repeated_call_gets_the_first_answer_also_after_a_crash() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    let client = world.client();
    let first = run(&mut member, vec![(call(client, 1, 1), add(1, 5)), (call(client, 2, 1), add(1, 5))]);
    let repeat =
        vec![(call(client, 2, 1), add(1, 5)), (call(client, 1, 1), add(1, 5)), (call(client, 3, 1), add(1, 1))];
    let answers = run(&mut member, repeat.clone());
    assert_eq!(answers, [first[1].clone(), first[0].clone(), Ok(reply(11, 3))]);
    drop(member);
    world.crash(&ozone_common::env::SeededRng::new(3));
    let mut member = world.open().unwrap();
    assert_eq!(run(&mut member, repeat), answers);
    assert_eq!(all(&**member.store()), [(1, 11)].into());
    // What was answered is forgotten; it is not executed again.
    run(&mut member, vec![(call(client, 4, 4), add(1, 1))]);
    let late = run(&mut member, vec![(call(client, 2, 4), add(1, 5))]);
    assert!(late[0].as_ref().unwrap_err().message.contains("was answered before"), "{late:?}");
}

#[test]
fn a_repeat_in_the_same_turn_is_not_executed_twice() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    let client = world.client();
    let answers = run(&mut member, vec![(call(client, 1, 1), add(1, 5)), (call(client, 1, 1), add(1, 5))]);
    assert_eq!(answers, [Ok(reply(5, 1)), Ok(reply(5, 1))]);
}

#[test]
fn sessions_take_as_many_rows_as_calls_in_flight_and_end_when_others_need_the_room() {
    let world = World::new(small());
    let mut member = world.open().unwrap();
    let rows = |member: &member::Member<Counters>| {
        let all = std::ops::Bound::Unbounded;
        member.store().scan(sessions::TABLE, all, all, ozone_kvstore::Direction::Forward).unwrap().count()
    };
    let old = world.client();
    for sequence in 1..50 {
        run(&mut member, vec![(call(old, sequence, sequence), add(1, 1))]);
    }
    assert_eq!(rows(&member), 1);
    world.clock.advance(1_000);
    for _ in 0..small().sessions_max - 1 {
        run(&mut member, vec![(call(world.client(), 1, 1), add(1, 1))]);
    }
    // No room, and nobody was silent for long.
    let refused = run(&mut member, vec![(call(world.client(), 1, 1), add(1, 1))]);
    assert_eq!(refused[0].as_ref().unwrap_err().code, ErrorCode::Overloaded);
    world.clock.advance(60_000);
    let before = all(&**member.store());
    run(&mut member, vec![(call(world.client(), 1, 1), add(2, 1))]);
    // The oldest went; its calls are refused, whether they were executed or not, and after a restart as well.
    for _ in 0..2 {
        for sequence in [49, 50] {
            let expired = run(&mut member, vec![(call(old, sequence, 49), add(1, 1))]);
            assert_eq!(expired[0].as_ref().unwrap_err().code, ErrorCode::SessionExpired);
        }
        drop(member);
        world.crash(&ozone_common::env::SeededRng::new(9));
        member = world.open().unwrap();
    }
    assert_eq!(all(&**member.store()).get(&1), before.get(&1));
    // 4 sessions with one row each, and the births of the expired one.
    assert_eq!(rows(&member), small().sessions_max + 1);
    world.clock.advance(1);
    run(&mut member, vec![(call(world.client(), 1, 1), add(2, 1))]);
}

#[test]
fn clients_without_a_birth_or_from_the_future_are_refused() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    for client in [ClientId::from_bytes([1; 16]), ClientId::fresh(1_700_003_600_000, &*world.env.rng)] {
        let refused = run(&mut member, vec![(call(client, 1, 1), add(1, 1))]);
        assert_eq!(refused[0].as_ref().unwrap_err().code, ErrorCode::InvalidArgument, "{client}");
    }
    assert_eq!(all(&**member.store()), [].into());
}

#[test]
fn a_full_disk_refuses_changes_and_takes_them_again_with_space() {
    let world = World::new(small());
    let mut member = world.open().unwrap();
    world.disk.faults.set_available(0);
    let mut refused = None;
    for _ in 0..20 {
        if let [Err(error)] = &run(&mut member, vec![(None, Command::Add { name: 1, by: 1, fill: 200 })])[..] {
            refused = Some(error.clone());
            break;
        }
    }
    let error = refused.unwrap();
    assert_eq!((error.code, error.retry), (ErrorCode::DiskFull, RetryClass::Same), "{error}");
    let before = read(&**member.store(), 1);
    world.disk.faults.clear();
    assert!(run(&mut member, vec![(None, add(1, 1))])[0].is_ok());
    assert_eq!(read(&**member.store(), 1), before + 1);
}

#[test]
fn a_failed_sync_stops_the_member_and_nothing_was_answered() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    world.disk.faults.fail_syncs_after(0);
    let (result, mut answers) = turn(&mut member, vec![(None, add(1, 1))]);
    assert!(matches!(result, Err(StopReason::Log(LogError::Io { attempted: "sync", .. }))), "{result:?}");
    assert_eq!(answered(&mut answers[0]), None);
}

#[test]
fn a_state_without_its_log_and_a_log_that_ends_early_are_refused() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    run(&mut member, vec![(None, add(1, 1))]);
    member.store().flush().unwrap();
    drop(member);
    let log = world.config().folder.join("log");
    let file = log.join(format!("{:020}.log", 1));
    let bytes = world.env.disk.read(&file).unwrap();
    world.env.disk.remove_file(&file).unwrap();
    let error = world.open().err().unwrap();
    assert!(error.to_string().contains("its log is gone"), "{error}");
    // Only the file's header: as if everything after had never been.
    world.env.disk.write_atomic(&file, &bytes[..128]).unwrap();
    let error = world.open().err().unwrap();
    assert!(error.to_string().contains("persisted entries are lost"), "{error}");
    world.env.disk.write_atomic(&file, &bytes).unwrap();
    assert_eq!(all(&**world.open().unwrap().store()), [(1, 1)].into());
}

#[test]
fn a_missing_store_comes_back_from_snapshot_and_log() {
    let world = World::new(small());
    let mut member = world.open().unwrap();
    for name in 0..60 {
        assert!(run(&mut member, vec![(None, Command::Add { name, by: 1, fill: 150 })])[0].is_ok());
    }
    let whole = all(&**member.store());
    drop(member);
    let store = world.config().folder.join("store");
    world.env.disk.remove_dir_all(&store).unwrap();
    *world.opener.store.lock() = None;
    let member = world.open().unwrap();
    assert_eq!(all(&**member.store()), whole);
    drop(member);
    // Without snapshots it cannot: the log was cut behind them.
    world.env.disk.remove_dir_all(&store).unwrap();
    world.env.disk.remove_dir_all(&world.config().folder.join("snapshots")).unwrap();
    *world.opener.store.lock() = None;
    let error = world.open().err().unwrap();
    assert!(error.to_string().contains("there is no snapshot between"), "{error}");
}

#[test]
fn another_leaders_rows_are_noticed_by_their_digest() {
    let world = World::new(Limits::default());
    let mut member = world.open().unwrap();
    run(&mut member, vec![(None, add(1, 1)), (None, add(1, 1))]);
    drop(member);
    // The state is made another one than the log tells: the position's digest is not that of the next entry's leader.
    let store = world.opener.store.lock().clone().unwrap();
    let mut position = Position::read(&store).unwrap().unwrap();
    position.digest ^= 1;
    position.last = EntryId { index: position.last.index.previous(), ..position.last };
    position.sequence = 0;
    let mut batch = ozone_kvstore::Batch::new();
    position.write(&mut batch);
    ozone_kvstore::Store::write(&store, &batch).unwrap();
    let error = world.open().err().unwrap();
    assert!(matches!(error, StopReason::Diverged { .. }), "{error}");
}

#[test]
fn more_commands_than_an_entry_takes_go_on_in_the_next_turn() {
    let world = World::new(small());
    let mut member = world.open().unwrap();
    let (result, mut answers) = turn(&mut member, (0..10).map(|name| (None, add(name, 1))).collect());
    result.unwrap();
    let now = answers.iter_mut().filter_map(answered).count();
    assert_eq!(now, small().batch_commands);
    member.turn(Arrived::default()).unwrap();
    member.turn(Arrived::default()).unwrap();
    assert_eq!(all(&**member.store()).len(), 10);
}

/// With its thread, on RocksDB and the machine's disk.
mod real {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use ozone_common::env::{Env, RealDisk};
    use ozone_kvstore::rocks::{Memory, RocksOptions};

    use super::*;

    fn config(folder: &Path, snapshot_log_bytes: u64) -> GroupConfig {
        GroupConfig {
            name: "test",
            group: [7; 16],
            member: MemberId(1),
            folder: folder.to_path_buf(),
            tables: vec![(COUNTERS, TableOptions::Rows)],
            limits: Limits { snapshot_log_bytes, ..Limits::default() },
        }
    }

    fn open(
        folder: &Path,
        snapshot_log_bytes: u64,
        stopped: &CancellationToken,
        hints: &Arc<AtomicU64>,
    ) -> Group<Counters> {
        let options = RocksOptions { memory: Memory::new(8 << 20, 4 << 20), ..RocksOptions::default() };
        let hints = hints.clone();
        let on_hint = move |_| {
            hints.fetch_add(1, Ordering::SeqCst);
        };
        Group::open(config(folder, snapshot_log_bytes), &Env::system(), Counters, &options, on_hint, stopped.clone())
            .unwrap()
    }

    /// 16 callers with 40 changes each.
    async fn load(group: &Group<Counters>) -> std::collections::BTreeMap<u8, u64> {
        let tasks = (0..16).map(|task| {
            let group = group.clone();
            tokio::spawn(async move {
                for sum in 1..=40 {
                    let command = Command::Add { name: task, by: 1, fill: 200 };
                    group.propose(None, command).await.unwrap();
                    group.read_barrier().await.unwrap();
                    assert_eq!(read(&**group.store(), task), sum, "what was answered is applied");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        (0..16).map(|name| (name, 40)).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_changes_survive_with_snapshots_taken_beside() {
        let folder = tempfile::tempdir().unwrap();
        let (stopped, hints) = (CancellationToken::new(), Arc::default());
        let group = open(folder.path(), 32 << 10, &stopped, &hints);
        assert!(group.state().leader && group.state().members == 1);
        let whole = load(&group).await;
        assert_eq!(all(&**group.store()), whole);
        group.close().await.unwrap();
        // Hints follow the answers.
        assert_eq!(hints.load(Ordering::SeqCst), 640);
        let error = group.propose(None, add(1, 1)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ShuttingDown);
        assert!(!group.state().leader && !stopped.is_cancelled());
        drop(group);
        assert_eq!(std::fs::read_dir(folder.path().join("snapshots")).unwrap().count(), 1);
        let group = open(folder.path(), 32 << 10, &stopped, &hints);
        assert_eq!(all(&**group.store()), whole);
        group.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_lies_on_disk_at_any_time_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let (stopped, hints) = (CancellationToken::new(), Arc::default());
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        let group = open(&first, u64::MAX, &stopped, &hints);
        let whole = load(&group).await;
        // What a kill would leave: nothing was flushed, all is in the log.
        RealDisk.copy_folder(&first, &second).unwrap();
        let copied = open(&second, u64::MAX, &stopped, &hints);
        assert_eq!(all(&**copied.store()), whole);
        // Threads of a store must not outlive the process's own end.
        copied.close().await.unwrap();
        group.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_member_that_cannot_go_on_tells_its_role() {
        let folder = tempfile::tempdir().unwrap();
        let (stopped, hints) = (CancellationToken::new(), Arc::default());
        let group = open(folder.path(), u64::MAX, &stopped, &hints);
        let error = group.propose(None, Command::Break).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Unavailable);
        tokio::time::timeout(std::time::Duration::from_secs(10), stopped.cancelled()).await.unwrap();
        assert!(group.propose(None, add(1, 1)).await.is_err() && group.read_barrier().await.is_err());
        assert!(group.close().await.unwrap_err().message.contains("broken"));
    }
}
