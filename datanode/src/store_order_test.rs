//! The store between two effects: what a crash, a refusal or somebody else's call in between must not change.

use crate::store::{Durability, ReplicaState};
use crate::store_world::{World, block, content, outcome};

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
