//! The store, call by call, on a disk in memory.

use bytes::Bytes;
use ozone_common::ErrorCode;
use ozone_common::env::Disk;

use crate::store::{Durability, ReplicaState, Seal};
use crate::store_world::{World, answer, block, code, container, content, outcome};

const WINDOW: usize = 16 << 10;

#[test]
fn a_small_block_is_read_back_in_any_part() {
    let mut world = World::new(1);
    for (local, length) in
        [0usize, 1, 4096, WINDOW - 1, WINDOW, WINDOW + 1, 5 * WINDOW + 7, 300 << 10].into_iter().enumerate()
    {
        let block = block(1, local as u32);
        let data = content(block, length);
        world.put(block, &data).unwrap();
        for (offset, count) in [(0, length), (0, 1), (length / 2, 1), (length / 2, length - length / 2), (WINDOW, 1)] {
            if count > 0 && offset + count <= length {
                let read = world.read_part(block, 1, length as u64, offset as u64, count as u64).unwrap();
                assert_eq!(read, data[offset..offset + count], "{length}: {offset}+{count}");
            }
        }
        // As committed at less.
        if length > 2 {
            assert_eq!(world.read(block, 1, length - 2).unwrap(), data[..length - 2], "{length}");
        }
        assert_eq!(code(world.read_part(block, 1, length as u64, 0, length as u64 + 1)), ErrorCode::InvalidArgument);
        assert_eq!(code(world.read_part(block, 1, length as u64, 0, 0)), ErrorCode::InvalidArgument);
        assert_eq!(code(world.read(block, 1, length + 1)), ErrorCode::BlockNotFound);
        if length > 0 {
            assert_eq!(code(world.read(block, 2, length)), ErrorCode::BlockNotFound);
        }
    }
    world.check_totals();
}

#[test]
fn puts_that_must_not_be_are_refused_without_a_trace() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 100);
    let (told, done) = answer();
    let put = crate::store::PutSmall {
        block: block(1, 1),
        epoch: 3,
        members: &[],
        durability: Durability::Disk,
        crcs: vec![7],
    };
    world.store().put_small(put.clone(), data.clone(), done);
    assert_eq!(code(outcome(&told)), ErrorCode::Corrupt, "damaged on the way");
    let (told, done) = answer();
    let members = [Bytes::from_static(b"short")];
    let crcs = ozone_common::checksum::windows(&data);
    world.store().put_small(crate::store::PutSmall { members: &members, crcs, ..put }, data.clone(), done);
    assert_eq!(code(outcome(&told)), ErrorCode::InvalidArgument, "members that are no ids");
    world.settle();
    assert!(world.report(1).is_none() && world.segments().is_empty());

    let first = world.put_later(block(1, 1), 3, &data, Durability::Disk);
    let twice = world.put_later(block(1, 1), 3, &data, Durability::Disk);
    world.settle();
    outcome(&first).unwrap();
    assert_eq!(code(outcome(&twice)), ErrorCode::InvalidBlock);
    let stale = world.put_later(block(1, 2), 2, &data, Durability::Disk);
    assert_eq!(code(outcome(&stale)), ErrorCode::StaleEpoch, "the replica was made under epoch 3");
    world.close(1, 3).unwrap();
    let late = world.put_later(block(1, 3), 3, &data, Durability::Disk);
    assert_eq!(code(outcome(&late)), ErrorCode::ContainerNotOpen);
    assert_eq!(world.report(1).unwrap().block_count, 1);
}

#[test]
fn a_block_in_chunks_is_read_once_finished() {
    let mut world = World::new(1);
    let block = block(1, 1);
    let data = content(block, (5 << 20) + 100);
    let mut writer = world.open_block(block, 1).unwrap();
    assert_eq!(code(world.open_block(block, 1).map(|_| ())), ErrorCode::InvalidBlock);
    let sizes = [1 << 20, 4 << 20, 100];
    let mut at = 0;
    let mut answers = Vec::new();
    for size in sizes {
        answers.push(World::append_later(&mut writer, at, data.slice(at..at + size)));
        at += size;
    }
    world.settle();
    answers.iter().for_each(|answer| outcome(answer).unwrap());
    assert_eq!(code(world.read(block, 1, 100)), ErrorCode::BlockNotFound, "it is not final");
    world.finish(writer, at).unwrap();
    assert_eq!(world.read(block, 1, at).unwrap(), data);
    for (offset, length) in [(0, 1), ((1 << 20) - 1, 2), (3 << 20, 2 << 20), (at - 1, 1), (5 << 20, 100)] {
        let part = world.read_part(block, 1, at as u64, offset as u64, length as u64).unwrap();
        assert_eq!(part, data[offset..offset + length], "{offset}+{length}");
    }
    world.check_totals();
    for again in 0..2 {
        world.restart();
        assert_eq!(world.read(block, 1, at).unwrap(), data, "restart {again}");
    }
}

#[test]
fn chunks_out_of_order_end_the_block() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 3 * WINDOW);
    let cases: [(&str, &[(usize, usize)]); 3] = [
        ("a gap", &[(0, WINDOW), (2 * WINDOW, WINDOW)]),
        ("a repeat", &[(0, WINDOW), (0, WINDOW)]),
        ("after a part of a window", &[(0, 100), (100, WINDOW)]),
    ];
    for (local, (what, chunks)) in cases.into_iter().enumerate() {
        let mut writer = world.open_block(block(1, local as u32), 1).unwrap();
        let (first, second) = (chunks[0], chunks[1]);
        world.append(&mut writer, first.0, data.slice(..first.1)).unwrap();
        assert_eq!(code(world.append(&mut writer, second.0, data.slice(..second.1))), ErrorCode::OutOfOrder, "{what}");
        assert_eq!(code(world.append(&mut writer, first.1, data.slice(..16))), ErrorCode::OutOfOrder, "{what}");
        assert_eq!(code(world.finish(writer, first.1)), ErrorCode::OutOfOrder, "{what}");
    }
    let mut writer = world.open_block(block(1, 9), 1).unwrap();
    world.append(&mut writer, 0, data.slice(..10)).unwrap();
    assert_eq!(code(world.finish(writer, 11)), ErrorCode::OutOfOrder, "another length");
}

#[test]
fn a_seal_fixes_a_block_at_any_length() {
    let mut world = World::new(1);
    let total = (2 << 20) + 5;
    // Chunk ends, window ends, within windows, all of it, nothing of it.
    for (local, length) in [1 << 20, (1 << 20) + WINDOW, (1 << 20) + 17, 5, total, 0, total - 1].into_iter().enumerate()
    {
        let block = block(1, local as u32);
        let data = content(block, total);
        let mut writer = world.open_block(block, 1).unwrap();
        world.append(&mut writer, 0, data.slice(..1 << 20)).unwrap();
        world.append(&mut writer, 1 << 20, data.slice(1 << 20..)).unwrap();
        assert_eq!(code(world.seal(block, 2, Some(total as u64 + 1))), ErrorCode::BlockNotFound);
        assert_eq!(world.seal(block, 2, Some(length as u64)).unwrap(), length as u64);
        assert_eq!(world.seal(block, 2, Some(length as u64)).unwrap(), length as u64, "a repeat");
        assert_eq!(world.seal(block, 2, None).unwrap(), length as u64);
        let late = World::append_later(&mut writer, total, data.slice(..1));
        assert_eq!(code(outcome(&late)), ErrorCode::StaleEpoch);
        assert_eq!(code(world.seal(block, 1, Some(length as u64))), ErrorCode::StaleEpoch);
        assert_eq!(code(world.seal(block, 2, Some(length as u64 + 1))), ErrorCode::StaleEpoch);
        if length > 0 {
            assert_eq!(world.read(block, 2, length).unwrap(), data[..length]);
            assert_eq!(world.read(block, 1, length).unwrap(), data[..length], "an older epoch of the reader");
        }
        // And once more, shorter, under a higher epoch.
        let shorter = length / 2;
        assert_eq!(world.seal(block, 3, Some(shorter as u64)).unwrap(), shorter as u64);
        if shorter > 0 {
            assert_eq!(world.read(block, 3, shorter).unwrap(), data[..shorter]);
        }
        world.check_totals();
    }
    let before = world.rows();
    world.lose_index();
    assert_eq!(world.rows(), before, "the index made anew is the same");
    world.crash();
    assert_eq!(world.rows(), before);
}

#[test]
fn a_promise_keeps_what_comes_late_out() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 100);
    assert_eq!(world.seal(block(1, 1), 5, None).unwrap(), 0, "nothing is here");
    let late = world.put_later(block(1, 1), 4, &data, Durability::Disk);
    world.settle();
    assert_eq!(code(outcome(&late)), ErrorCode::StaleEpoch);
    let fine = world.put_later(block(1, 1), 5, &data, Durability::Disk);
    world.settle();
    outcome(&fine).unwrap();
    assert_eq!(world.read(block(1, 1), 5, 100).unwrap(), data);
    // A writer under the promised epoch goes on, one below it does not.
    let mut below = world.open_block(block(1, 2), 5).unwrap();
    world.append(&mut below, 0, content(block(1, 2), WINDOW)).unwrap();
    assert_eq!(world.seal(block(1, 2), 6, None).unwrap(), WINDOW as u64);
    assert_eq!(code(world.append(&mut below, WINDOW, data.clone())), ErrorCode::StaleEpoch);
    assert_eq!(world.seal(block(1, 2), 6, Some(WINDOW as u64)).unwrap(), WINDOW as u64);
    assert_eq!(code(world.seal(block(9, 1), 1, Some(1))), ErrorCode::BlockNotFound, "no replica");
    world.check_totals();
    let before = world.rows();
    world.lose_index();
    assert_eq!(world.rows(), before);
}

#[test]
fn deleted_blocks_are_gone_and_their_ids_spent() {
    let mut world = World::new(1);
    for local in 0..20 {
        world.put(block(1, local), &content(block(1, local), 5000)).unwrap();
    }
    let mut writer = world.open_block(block(1, 50), 1).unwrap();
    world.append(&mut writer, 0, content(block(1, 50), WINDOW)).unwrap();
    world.delete(1, 5, 10, 7).unwrap();
    world.delete(1, 40, 20, 8).unwrap();
    world.delete(1, 5, 10, 7).unwrap();
    assert_eq!(code(world.append(&mut writer, WINDOW, content(block(1, 50), 10))), ErrorCode::BlockDeleted);
    for local in 0..20 {
        let read = world.read(block(1, local), 1, 5000);
        match local {
            5..15 => assert_eq!(code(read), ErrorCode::BlockNotFound),
            _ => assert_eq!(read.unwrap(), content(block(1, local), 5000)),
        }
    }
    for local in [5, 14, 40, 59] {
        assert_eq!(code(world.put(block(1, local), &content(block(1, local), 10))), ErrorCode::BlockDeleted, "{local}");
        assert_eq!(code(world.seal(block(1, local), 9, None)), ErrorCode::BlockDeleted, "{local}");
    }
    world.put(block(1, 39), &content(block(1, 39), 10)).unwrap();
    let report = world.report(1).unwrap();
    assert_eq!((report.block_count, report.delete_sequence), (11, 8));
    world.check_totals();
    assert_eq!(code(world.delete(1, 1, 0, 9)), ErrorCode::InvalidArgument);
    assert_eq!(code(world.delete(1, 1 << 23, 1 << 24, 9)), ErrorCode::InvalidArgument);
    // A container that never was here: its late writers are kept out as well.
    world.delete(2, 3, 1, 9).unwrap();
    assert_eq!(code(world.put(block(2, 3), &content(block(2, 3), 10))), ErrorCode::BlockDeleted);
    let before = world.rows();
    world.lose_index();
    assert_eq!(world.rows(), before);
}

#[test]
fn a_replica_closes_with_the_same_digest_wherever_it_is() {
    let digest = |order: &[u32], seed: u64| {
        let mut world = World::new(seed);
        for local in order {
            world.put(block(1, *local), &content(block(1, *local), 1000 + *local as usize)).unwrap();
        }
        world.delete(1, 2, 1, 1).unwrap();
        world.close(1, 1).unwrap();
        let report = world.report(1).unwrap();
        assert_eq!(report.state, ReplicaState::Closed);
        world.delete(1, 3, 4, 2).unwrap();
        let after = world.report(1).unwrap().digest;
        assert_ne!(after, report.digest);
        world.restart();
        assert_eq!(world.report(1).unwrap().digest, after);
        world.lose_index();
        assert_eq!(world.report(1).unwrap().digest, after, "computed anew");
        (report.digest.unwrap(), after.unwrap())
    };
    assert_eq!(digest(&[1, 2, 3, 4], 1), digest(&[4, 2, 1, 3], 2));
    assert_ne!(digest(&[1, 2, 3, 4], 1).0, digest(&[1, 2, 3, 5], 1).0);
}

#[test]
fn closing_waits_for_those_who_may_come_back() {
    let mut world = World::new(1);
    let data = content(block(1, 1), WINDOW);
    let mut finishes = world.open_block(block(1, 1), 1).unwrap();
    let mut sealed = world.open_block(block(1, 2), 1).unwrap();
    let mut left = world.open_block(block(1, 3), 1).unwrap();
    let mut given_up = world.open_block(block(1, 4), 1).unwrap();
    for writer in [&mut finishes, &mut sealed, &mut left, &mut given_up] {
        world.append(writer, 0, data.clone()).unwrap();
    }
    world.close(1, 2).unwrap();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closing);
    assert_eq!(code(world.put(block(1, 5), &data)), ErrorCode::ContainerNotOpen);
    world.append(&mut finishes, WINDOW, data.clone()).unwrap();
    world.finish(finishes, 2 * WINDOW).unwrap();
    drop(sealed);
    assert_eq!(world.seal(block(1, 2), 2, Some(WINDOW as u64)).unwrap(), WINDOW as u64);
    given_up.abandon();
    drop(left);
    world.settle();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closing, "someone may seal block 3");
    world.clock.advance(30_001);
    world.settle();
    let report = world.report(1).unwrap();
    assert_eq!((report.state, report.block_count, report.epoch), (ReplicaState::Closed, 2, 2));
    assert_eq!(code(world.seal(block(1, 3), 2, Some(WINDOW as u64))), ErrorCode::BlockNotFound);
    // A final block's epoch may still rise: its writer may have lost another member meanwhile.
    assert_eq!(world.seal(block(1, 1), 3, Some(2 * WINDOW as u64)).unwrap(), 2 * WINDOW as u64);
    assert_eq!(world.read(block(1, 1), 3, WINDOW).unwrap(), data);
    assert_ne!(world.report(1).unwrap().digest, report.digest);
    let before = world.rows();
    world.lose_index();
    assert_eq!(world.rows(), before);
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closed);
}

#[test]
fn a_container_that_is_not_here_is_made_closed() {
    let mut world = World::new(1);
    world.close(4, 2).unwrap();
    let report = world.report(4).unwrap();
    assert_eq!((report.state, report.epoch, report.block_count), (ReplicaState::Closed, 2, 0));
    assert_eq!(code(world.put(block(4, 1), &content(block(4, 1), 10))), ErrorCode::ContainerNotOpen);
    world.crash();
    assert_eq!(world.report(4).unwrap().state, ReplicaState::Closed);
}

#[test]
fn a_restart_ends_writing_and_keeps_what_can_be_sealed() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 2 * WINDOW);
    let mut writer = world.open_block(block(1, 1), 1).unwrap();
    world.append(&mut writer, 0, data.slice(..WINDOW)).unwrap();
    world.append(&mut writer, WINDOW, data.slice(WINDOW..)).unwrap();
    world.kill();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closing);
    assert_eq!(code(world.put(block(1, 2), &data)), ErrorCode::ContainerNotOpen);
    assert_eq!(world.seal(block(1, 1), 2, None).unwrap(), 2 * WINDOW as u64);
    assert_eq!(world.seal(block(1, 1), 2, Some(WINDOW as u64)).unwrap(), WINDOW as u64);
    assert_eq!(world.read(block(1, 1), 2, WINDOW).unwrap(), data[..WINDOW]);
    world.settle();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closing, "nobody told it to close");
    world.close(1, 2).unwrap();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closed);
}

#[test]
fn a_full_disk_refuses_and_leaves_no_trace() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 5000);
    world.put(block(1, 1), &data).unwrap();
    // The reserve is kept from new data before anything is written.
    world.disk.faults.set_available((1 << 20) + 4000);
    world.background();
    assert_eq!(code(world.put(block(1, 2), &data)), ErrorCode::DiskFull);
    world.disk.faults.set_available(1 << 30);
    world.background();
    // Somebody else took the space meanwhile.
    world.disk.faults.set_available(6000);
    let answers: Vec<_> = (2..5).map(|local| world.put_later(block(1, local), 1, &data, Durability::Disk)).collect();
    while world.lanes.iter_mut().any(|lane| lane.turn()) {}
    answers.iter().for_each(|answer| assert_eq!(code(outcome(answer)), ErrorCode::DiskFull));
    world.disk.faults.clear();
    world.background();
    let rows = world.rows();
    world.put(block(1, 2), &data).unwrap();
    assert_eq!(world.read(block(1, 2), 1, 5000).unwrap(), data, "the id was not spent by the refusal");
    assert_eq!(world.rows().len(), rows.len() + 1);
    world.crash();
    for local in [1, 2] {
        assert_eq!(world.read(block(1, local), 1, 5000).unwrap(), data);
    }
    assert_eq!(code(world.read(block(1, 3), 1, 5000)), ErrorCode::BlockNotFound);
}

#[test]
fn a_failed_sync_takes_the_volume_out() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 5000);
    world.put(block(1, 1), &data).unwrap();
    world.store().take_changes();
    world.disk.faults.fail_syncs_after(0);
    assert_eq!(code(world.put(block(1, 2), &data)), ErrorCode::VolumeFailed);
    world.disk.faults.clear();
    assert_eq!(code(world.put(block(1, 3), &data)), ErrorCode::VolumeFailed, "for good");
    assert_eq!(code(world.read(block(1, 1), 1, 5000)), ErrorCode::VolumeFailed);
    assert_eq!(code(world.seal(block(1, 1), 2, None)), ErrorCode::VolumeFailed);
    let changes = world.store().take_changes();
    assert!(changes.volumes);
    assert_eq!(changes.replicas.iter().map(|r| r.state).collect::<Vec<_>>(), [ReplicaState::Deleted]);
    assert!(world.store().report().is_empty());
    assert!(world.store().usage()[0].failed.as_ref().unwrap().contains("sync a segment"));
    world.crash();
    assert_eq!(world.read(block(1, 1), 1, 5000).unwrap(), data);
}

#[test]
fn a_flipped_byte_is_found_reported_and_quarantined() {
    for in_header in [false, true] {
        let mut world = World::new(1);
        let data = content(block(1, 1), 5000);
        world.put(block(1, 1), &data).unwrap();
        world.put(block(1, 2), &data).unwrap();
        let path = world.segments().remove(0);
        let at = world.file(&path).windows(64).position(|bytes| bytes == &data[..64]).unwrap();
        world.disk.corrupt(&path, if in_header { at as u64 - 12 } else { at as u64 + 70 }, 8);
        assert_eq!(code(world.read(block(1, 1), 1, 5000)), ErrorCode::Corrupt);
        world.settle();
        let changes = world.store().take_changes();
        assert_eq!(changes.corrupt.iter().map(|corrupt| corrupt.block).collect::<Vec<_>>(), [block(1, 1)]);
        assert_eq!(world.report(1).unwrap().state, ReplicaState::Unhealthy);
        assert_eq!(world.read(block(1, 2), 1, 5000).unwrap(), data, "what is good is still given");
        assert_eq!(code(world.put(block(1, 3), &data)), ErrorCode::ContainerNotOpen);
        world.restart();
        assert_eq!(world.report(1).unwrap().state, ReplicaState::Unhealthy, "it is remembered");
        // A complaint about a good block changes nothing.
        world.store().report_corrupt(block(1, 2), 0);
        world.settle();
        assert!(world.store().take_changes().corrupt.is_empty());
    }
}

#[test]
fn damage_in_the_middle_is_told_from_a_torn_tail() {
    let mut world = World::new(1);
    let data = content(block(1, 1), 5000);
    for local in 1..5 {
        world.put(block(1, local), &data).unwrap();
    }
    let path = world.segments().remove(0);
    let second = 32 + (5000u64 + 52).next_multiple_of(8);
    world.disk.corrupt(&path, second + 20, 1);
    world.lose_index();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Unhealthy);
    for local in [1, 3, 4] {
        assert_eq!(world.read(block(1, local), 1, 5000).unwrap(), data, "{local}");
    }
    assert_eq!(code(world.read(block(1, 2), 1, 5000)), ErrorCode::BlockNotFound);
    // A missing segment of a closed replica.
    world.put(block(2, 1), &data).unwrap();
    world.close(2, 1).unwrap();
    let path = world.segments().into_iter().find(|path| path.to_string_lossy().contains("0000000002/")).unwrap();
    world.disk.remove_file(&path).unwrap();
    world.restart();
    assert_eq!(world.report(2).unwrap().state, ReplicaState::Unhealthy);
}

#[test]
fn space_comes_back() {
    let mut world = World::new(1);
    // Small blocks: the sparse segment is written again without them.
    let small = content(block(1, 1), 100 << 10);
    for local in 0..100 {
        world.put(block(1, local), &small).unwrap();
    }
    // Large ones: their pages are punched.
    let large = content(block(1, 200), 1 << 20);
    for local in 200..204 {
        let mut writer = world.open_block(block(1, local), 1).unwrap();
        world.append(&mut writer, 0, large.clone()).unwrap();
        world.finish(writer, large.len()).unwrap();
    }
    world.seal(block(1, 3), 2, Some(70_000)).unwrap();
    world.close(1, 1).unwrap();
    world.delete(1, 10, 90, 1).unwrap();
    world.delete(1, 201, 2, 2).unwrap();
    world.settle();
    let zeros = |world: &World| {
        let bulk = world.segments().into_iter().find(|path| path.extension().unwrap() == "bulk").unwrap();
        world.file(&bulk).iter().filter(|byte| **byte == 0).count()
    };
    assert!(zeros(&world) > 2 << 20, "pages are given back");
    let check = |world: &World| {
        for local in (0..10).filter(|local| *local != 3) {
            assert_eq!(world.read(block(1, local), 1, small.len()).unwrap(), small, "{local}");
        }
        assert_eq!(world.read(block(1, 3), 2, 70_000).unwrap(), small[..70_000]);
        for local in [200, 203] {
            assert_eq!(world.read(block(1, local), 1, large.len()).unwrap(), large);
        }
        assert_eq!(code(world.read(block(1, 10), 1, small.len())), ErrorCode::BlockNotFound);
        world.check_totals();
    };
    check(&world);
    let sizes = |world: &World| world.segments().iter().map(|path| world.file(path).len()).sum::<usize>();
    let before = sizes(&world);
    world.clock.advance(60_001);
    world.settle();
    assert!(sizes(&world) < before - (9 << 20), "{} of {before}", sizes(&world));
    check(&world);
    let (rows, digest) = (world.rows(), world.report(1).unwrap().digest);
    world.lose_index();
    check(&world);
    assert_eq!(world.rows(), rows);
    assert_eq!(world.report(1).unwrap().digest, digest);
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closed, "no segment is missed");
    world.delete(1, 0, 300, 3).unwrap();
    world.settle();
    assert!(!world.segments().iter().any(|path| path.extension().unwrap() == "bulk"), "nothing live, no file");
    world.restart();
    assert_eq!(world.report(1).unwrap().state, ReplicaState::Closed);
}

#[test]
fn volumes_share_containers_and_fail_alone() {
    let world = World::new(1);
    let told = world.store().usage();
    assert_eq!(told.len(), 1);
    assert!(told[0].failed.is_none() && told[0].capacity_bytes > told[0].available_bytes);
    // A seal for a block whose record is still on its way is to be asked again.
    let data = content(block(1, 1), 10);
    let put = world.put_later(block(1, 1), 1, &data, Durability::Disk);
    let (told, done) = answer();
    world.store().seal(Seal { block: block(1, 1), epoch: 2, length: None }, done);
    assert_eq!(code(outcome(&told)), ErrorCode::Overloaded);
    assert!(put.lock().is_none());
    assert_eq!(world.store().shared().get(container(1)).map(|replica| replica.volume), Some(0));
}
