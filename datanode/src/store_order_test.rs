//! The store between two effects: what a crash, a refusal or somebody else's call in between must not change.

use ozone_common::ErrorCode;

use crate::store::{Durability, ReplicaState};
use crate::store_world::{World, block, code, container, content, outcome};

#[test]
fn a_crash_after_compaction_misses_no_segment() {
    let small = content(block(1, 1), 100 << 10);
    // What of the index survives the kill is the seed's choice.
    for seed in 0..12 {
        let mut world = World::new(seed);
        let puts = (0..100).map(|local| world.put_later(block(1, local), 1, &small, Durability::Disk));
        let puts: Vec<_> = puts.collect();
        world.settle();
        puts.iter().for_each(|put| outcome(put).unwrap());
        world.delete(1, 10, 90, 1).unwrap();
        world.restart();
        world.settle();
        let before = world.segments();
        for _ in 0..2 {
            world.clock.advance(60_001);
            world.settle();
        }
        assert!(!world.segments().contains(&before[0]), "the sparse segment is gone");
        world.kill();
        assert_eq!(world.report(1).unwrap().state, ReplicaState::Closing, "seed {seed}");
        for local in 0..10 {
            assert_eq!(world.read(block(1, local), 1, small.len()).unwrap(), small, "seed {seed}, block {local}");
        }
        world.check_totals();
        let rows = world.rows();
        world.lose_index();
        assert_eq!(world.rows(), rows, "seed {seed}");
    }
}

#[test]
fn a_put_is_queued_under_the_hold_that_judged_it() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 100);
    world.put(block(1, 1), &data).unwrap();
    let shared = world.store().shared().clone();
    let replica = shared.get(container(1)).unwrap();
    let queue = &shared.volume_of(&replica).unwrap().small;
    // Nobody gets into the queue: were the replica free meanwhile, a delete or a close could overtake the put that it takes for queued.
    let held = queue.hold();
    let late = std::thread::scope(|scope| {
        let put = scope.spawn(|| world.put_later(block(1, 2), 1, &data, Durability::Disk));
        let mut taken = 0;
        while taken < 1000 {
            match replica.state.try_lock() {
                Some(state) => {
                    assert_eq!(state.in_flight, 0, "it was judged");
                    taken = 0;
                }
                None => taken += 1,
            }
            std::thread::yield_now();
        }
        drop(held);
        put.join().unwrap()
    });
    world.settle();
    outcome(&late).unwrap();
}

#[test]
fn a_delete_on_its_way_keeps_out_what_comes_after_it() {
    for length in [100, 200 << 10] {
        let mut world = World::new(1);
        let data = content(block(1, 1), length);
        // A promise for a block makes a put of it possible though its id is known.
        assert_eq!(world.seal(block(1, 1), 2, None).unwrap(), 0);
        let delete = world.delete_later(1, 1, 1, 1);
        let put = world.put_later(block(1, 1), 2, &data, Durability::Disk);
        world.settle();
        outcome(&delete).unwrap();
        assert_eq!(code(outcome(&put)), ErrorCode::BlockDeleted, "{length}");
        assert_eq!(code(world.read(block(1, 1), 2, length)), ErrorCode::BlockNotFound, "{length}");
        world.check_totals();
        let rows = world.rows();
        world.lose_index();
        assert_eq!(world.rows(), rows, "{length}");
    }
}

#[test]
fn a_put_that_fails_frees_no_id_that_was_deleted_meanwhile() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 5000);
    world.put(block(1, 1), &data).unwrap();
    let put = world.put_later(block(1, 2), 1, &data, Durability::Disk);
    world.disk.faults.set_available(0);
    let jobs = world.store().shared().clone();
    let delete = world.delete_later(1, 2, 1, 1);
    // The put alone meets the full disk.
    let queue = &jobs.volumes().next().unwrap().small;
    let delete_job = queue.take_back().unwrap();
    while world.lanes.iter_mut().any(|lane| lane.turn()) {}
    assert_eq!(code(outcome(&put)), ErrorCode::DiskFull);
    world.disk.faults.clear();
    queue.push(delete_job).map_err(|_| ()).unwrap();
    world.settle();
    outcome(&delete).unwrap();
    assert_eq!(code(world.put(block(1, 2), &data)), ErrorCode::BlockDeleted);
    assert_eq!(code(world.read(block(1, 2), 1, 5000)), ErrorCode::BlockNotFound);
}
