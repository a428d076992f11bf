//! Looks at containers whose record or replicas changed, and now and then at all unsettled ones: closes, tells datanodes to close, marks closed.
//! Also acts on nodes that fell silent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ozone_common::Result;
use ozone_common::id::{ContainerId, DatanodeId};
use ozone_common::replication::Replication;
use ozone_common::telemetry::RateLimit;
use ozone_proto::scm::v1::{CloseContainer, node_command};
use tokio_util::sync::CancellationToken;

use crate::core::Command;
use crate::observe::node_health::Health;
use crate::plan::container_close::{Limits, Replica, Step, plan};
use crate::scm::{Scm, storage};
use crate::tables::container::{self, Container, Phase};

/// How often all unsettled containers and all nodes are looked at, at most; health settings may ask for more.
const REVIEW_INTERVAL: Duration = Duration::from_secs(5);
/// A node is not told to close the same replica more often.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// LIMIT: containers in one command.
const BATCH_MAX: usize = 1000;

/// Runs until shutdown. What fails is found again at the next review.
pub(crate) async fn run(scm: Arc<Scm>, shutdown: CancellationToken) {
    let interval = REVIEW_INTERVAL.min(scm.config.stale_after.duration() / 3);
    let mut closer = Closer { scm, told: HashMap::new() };
    let mut next_review = tokio::time::Instant::now();
    loop {
        let review = tokio::select! {
            () = shutdown.cancelled() => return,
            () = closer.scm.wakeups.containers_changed.notified() => false,
            () = tokio::time::sleep_until(next_review) => true,
        };
        let done = if review {
            next_review = tokio::time::Instant::now() + interval;
            closer.review().await
        } else {
            let changed = closer.scm.wakeups.take_containers();
            closer.look_at(changed).await
        };
        if let Err(error) = done {
            static LIMIT: RateLimit = RateLimit::every_ms(10_000);
            if let Some(held_back) = LIMIT.pass() {
                tracing::warn!(%error, held_back, "containers could not be looked after; tried again soon");
            }
        }
    }
}

pub(crate) struct Closer {
    pub scm: Arc<Scm>,
    /// Whom we told to close what, over which stream, and when. What an ended stream carried may be lost.
    pub told: HashMap<(ContainerId, DatanodeId), (u64, Duration)>,
}

impl Closer {
    /// Everything that time alone may have changed.
    pub(crate) async fn review(&mut self) -> Result<()> {
        let now = self.scm.env.clock.boot();
        self.told.retain(|_, (_, at)| now.saturating_sub(*at) < TELL_AGAIN_AFTER);
        self.scm.review_safe_mode();
        self.act_on_silence(now).await?;
        let mut ids = self.scm.wakeups.take_containers();
        let mut active = 0;
        for phase in [Phase::Filling, Phase::Spent, Phase::Closing, Phase::Deleting] {
            let found = container::in_phase(self.scm.log.store(), phase, None).map_err(storage)?;
            active += found.len();
            ids.extend(found.into_iter().map(|container| container.id));
        }
        self.scm.metrics.containers_active.set(active as f64);
        self.look_at(ids).await
    }

    async fn act_on_silence(&self, now: Duration) -> Result<()> {
        let scm = &self.scm;
        let intervals = scm.intervals();
        let (worsened, counts) = {
            let mut seen = scm.seen.lock();
            let worsened = seen.nodes.take_worsened(now, &intervals);
            for (node, health) in &worsened {
                if *health == Health::Dead {
                    let lost = seen.replicas.forget(*node);
                    scm.wakeups.look_at(lost);
                }
            }
            let counts = [Health::Healthy, Health::Stale, Health::Dead].map(|h| seen.nodes.count(h, now, &intervals));
            (worsened, counts)
        };
        let gauges = [&scm.metrics.nodes_healthy, &scm.metrics.nodes_stale, &scm.metrics.nodes_dead];
        for (gauge, count) in gauges.into_iter().zip(counts) {
            gauge.set(count as f64);
        }
        for (node, health) in worsened {
            tracing::warn!(datanode = %node, %health, "datanode is silent");
            if health == Health::Dead {
                self.drop_from_unsettled(node).await?;
            }
        }
        Ok(())
    }

    async fn drop_from_unsettled(&self, node: DatanodeId) -> Result<()> {
        let mut ids = Vec::new();
        for phase in [Phase::Filling, Phase::Spent, Phase::Closing] {
            let found = container::in_phase(self.scm.log.store(), phase, None).map_err(storage)?;
            ids.extend(found.into_iter().filter(|container| container.has(node)).map(|container| container.id));
        }
        for containers in ids.chunks(BATCH_MAX) {
            let command = Command::DropMember { node, containers: containers.to_vec() };
            self.scm.log.propose(None, command).await?;
        }
        Ok(())
    }

    /// Plans and carries out the next step of each container.
    pub(crate) async fn look_at(&mut self, ids: BTreeSet<ContainerId>) -> Result<()> {
        let mut full = HashMap::new();
        let (mut close, mut closed, mut reported) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            let Some(container) = container::get(self.scm.log.store(), id).map_err(storage)? else {
                self.unknown(id);
                continue;
            };
            let full_placement = match full.get(&container.replication) {
                Some(known) => *known,
                None => {
                    let known = self.full_placement(container.replication)?;
                    full.insert(container.replication, known);
                    known
                }
            };
            let replicas = self.replicas(id);
            if !container.reported && !replicas.is_empty() {
                reported.push(id);
            }
            match self.next_step(&container, &replicas, full_placement) {
                Step::Nothing => {}
                Step::Close(reason) => {
                    tracing::info!(container_id = %id, reason, "closing container");
                    self.scm.metrics.containers_closed.increment(1);
                    close.push(id);
                }
                Step::MarkClosed(reporters) => closed.push((id, reporters)),
                Step::CloseReplicas(nodes) => self.tell_to_close(&container, nodes),
            }
        }
        for containers in reported.chunks(BATCH_MAX) {
            self.scm.log.propose(None, Command::MarkReported { containers: containers.to_vec() }).await?;
        }
        for containers in close.chunks(BATCH_MAX) {
            self.scm.log.propose(None, Command::CloseContainers { containers: containers.to_vec() }).await?;
        }
        for containers in closed.chunks(BATCH_MAX) {
            self.scm.log.propose(None, Command::MarkClosed { containers: containers.to_vec() }).await?;
        }
        Ok(())
    }

    fn next_step(&self, container: &Container, replicas: &[Replica], full_placement: bool) -> Step {
        let config = &self.scm.config;
        let limits = Limits {
            container_size: config.container_size.get(),
            spent_close_ms: config.spent_close_after.as_millis(),
            full_placement,
        };
        plan(container, replicas, self.scm.env.clock.now_ms(), &limits)
    }

    fn full_placement(&self, replication: Replication) -> Result<bool> {
        let usable = self.scm.usable(replication, &[])?;
        Ok(usable.is_ok_and(|nodes| nodes.iter().filter(|node| !node.suspect).count() >= replication.replicas()))
    }

    fn replicas(&self, id: ContainerId) -> Vec<Replica> {
        let seen = self.scm.seen.lock();
        seen.replicas.get(id).map(|(node, r)| Replica { node, state: r.state(), used: r.used }).collect()
    }

    fn tell_to_close(&mut self, container: &Container, nodes: Vec<DatanodeId>) {
        let now = self.scm.env.clock.boot();
        let term = self.scm.term();
        for node in nodes {
            let Some(stream) = self.scm.queues.stream(node) else { continue };
            let told = self.told.get(&(container.id, node));
            if told.is_some_and(|(over, at)| *over == stream && now.saturating_sub(*at) < TELL_AGAIN_AFTER) {
                continue;
            }
            let command = CloseContainer { container: container.id.get(), epoch: container.epoch };
            if self.scm.queues.send(node, term, node_command::Command::Close(command)) {
                self.told.insert((container.id, node), (stream, now));
            }
        }
    }

    /// A replica without a record is left alone: it may be all that is left of something. People are told.
    fn unknown(&self, id: ContainerId) {
        self.scm.metrics.unknown_replicas.increment(1);
        static LIMIT: RateLimit = RateLimit::every_ms(60_000);
        if let Some(held_back) = LIMIT.pass() {
            tracing::warn!(container_id = %id, held_back, "a datanode holds a replica of a container without a record");
        }
    }
}
