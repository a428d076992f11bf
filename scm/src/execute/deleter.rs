//! Sends delete transactions to the members of their containers until all answered.

use std::sync::Arc;
use std::time::Duration;

use ozone_common::Result;
use ozone_common::id::DatanodeId;
use ozone_common::telemetry::RateLimit;
use ozone_proto::scm::v1::{ContainerBlocks, DeleteBlocks, LocalRange, node_command};
use tokio_util::sync::CancellationToken;

use crate::core::Command;
use crate::core::deletion_log::is_done;
use crate::scm::{Scm, storage};
use crate::tables::container;
use crate::tables::deleted_block::{self, Deletion};

/// How often unanswered transactions are looked at without another reason.
const REVIEW_INTERVAL: Duration = Duration::from_secs(10);
/// LIMIT: rows of the log read for one node in one turn.
const SCAN_MAX: usize = 4096;
/// LIMIT: transactions in one command, and looked at in one review.
const BATCH_MAX: usize = 1000;

/// Runs until shutdown.
pub(crate) async fn run(scm: Arc<Scm>, shutdown: CancellationToken) {
    let mut next_review = tokio::time::Instant::now() + REVIEW_INTERVAL;
    loop {
        let review = tokio::select! {
            () = shutdown.cancelled() => return,
            () = scm.wakeups.deletes_changed.notified() => false,
            () = tokio::time::sleep_until(next_review) => true,
        };
        if review {
            next_review = tokio::time::Instant::now() + REVIEW_INTERVAL;
        }
        if let Err(error) = turn(&scm, review).await {
            static LIMIT: RateLimit = RateLimit::every_ms(10_000);
            if let Some(held_back) = LIMIT.pass() {
                tracing::warn!(%error, held_back, "delete transactions could not be looked after; tried again soon");
            }
        }
    }
}

/// One look at everything: answers first, which make room, then what can be sent.
pub(crate) async fn turn(scm: &Scm, review: bool) -> Result<()> {
    let mut looked_at = scm.deletes.lock().take_fresh();
    if review {
        // A member may have been dropped since: then nobody else's answer will come.
        looked_at.extend(scm.deletes.lock().partly_answered(BATCH_MAX));
    }
    let mut done = Vec::new();
    for transaction in looked_at {
        check_answers(scm, transaction, &mut done)?;
    }
    for (node, stream) in scm.queues.nodes() {
        send_to(scm, node, stream, &mut done)?;
    }
    finish(scm, done).await?;
    scm.metrics.deletes_in_flight.set(scm.deletes.lock().in_flight() as f64);
    Ok(())
}

type Done = Vec<(u64, Vec<DatanodeId>)>;

fn check_answers(scm: &Scm, transaction: u64, done: &mut Done) -> Result<()> {
    let store = scm.log.store();
    let Some(deletion) = deleted_block::get(store, transaction).map_err(storage)? else {
        scm.deletes.lock().finished(transaction);
        return Ok(());
    };
    let answers = scm.deletes.lock().answers(transaction);
    if is_done(store, &deletion, &answers).map_err(storage)? {
        done.push((transaction, answers));
        return Ok(());
    }
    for (id, _) in &deletion.containers {
        let members = container::get(store, *id).map_err(storage)?.map(|container| container.members);
        for member in members.unwrap_or_default() {
            if !answers.contains(&member) {
                scm.deletes.lock().ask_again(member, transaction);
            }
        }
    }
    Ok(())
}

fn send_to(scm: &Scm, node: DatanodeId, stream: u64, done: &mut Done) -> Result<()> {
    let store = scm.log.store();
    let turn = scm.deletes.lock().begin(node, stream, scm.env.clock.boot());
    let mut room = turn.room;
    for transaction in turn.again {
        match deleted_block::get(store, transaction).map_err(storage)? {
            Some(deletion) if room > 0 => match send_one(scm, node, &deletion, done)? {
                Sent::Yes => room -= 1,
                Sent::NotNeeded => {}
                Sent::QueueFull => return Ok(()),
            },
            Some(_) => return Ok(()),
            None => scm.deletes.lock().skipped(node, transaction),
        }
    }
    if room == 0 {
        return Ok(());
    }
    for (read, deletion) in deleted_block::scan(store, turn.cursor).map_err(storage)?.enumerate() {
        if read == SCAN_MAX {
            // The rest in another turn, after others had theirs.
            scm.wakeups.deletes_changed.notify_one();
            break;
        }
        match send_one(scm, node, &deletion.map_err(storage)?, done)? {
            Sent::Yes => room -= 1,
            Sent::NotNeeded => {}
            Sent::QueueFull => break,
        }
        if room == 0 {
            break;
        }
    }
    Ok(())
}

enum Sent {
    Yes,
    NotNeeded,
    QueueFull,
}

fn send_one(scm: &Scm, node: DatanodeId, deletion: &Deletion, done: &mut Done) -> Result<Sent> {
    let store = scm.log.store();
    let transaction = deletion.transaction;
    let mut containers = Vec::new();
    for (id, ranges) in &deletion.containers {
        if container::get(store, *id).map_err(storage)?.is_some_and(|container| container.has(node)) {
            let ranges = ranges.iter().map(|range| LocalRange { first: range.first, count: range.count });
            containers.push(ContainerBlocks { container: id.get(), ranges: ranges.collect() });
        }
    }
    let answers = scm.deletes.lock().answers(transaction);
    if containers.is_empty() || answers.contains(&node) {
        scm.deletes.lock().skipped(node, transaction);
        if is_done(store, deletion, &answers).map_err(storage)? {
            done.push((transaction, answers));
        }
        return Ok(Sent::NotNeeded);
    }
    let command = node_command::Command::DeleteBlocks(DeleteBlocks { transaction, containers });
    if !scm.queues.send(node, scm.term(), command) {
        return Ok(Sent::QueueFull);
    }
    scm.deletes.lock().sent(node, transaction, scm.env.clock.boot());
    Ok(Sent::Yes)
}

async fn finish(scm: &Scm, mut done: Done) -> Result<()> {
    done.sort_unstable();
    done.dedup_by_key(|(transaction, _)| *transaction);
    for batch in done.chunks(BATCH_MAX) {
        scm.log.propose(None, Command::FinishDeletes { done: batch.to_vec() }).await?;
        let mut tracker = scm.deletes.lock();
        for (transaction, _) in batch {
            tracker.finished(*transaction);
        }
        scm.metrics.deletes_finished.increment(batch.len() as u64);
    }
    Ok(())
}
