//! Block ids held ahead, so that a small PUT asks nobody for one.
//!
//! A *grant* of the OM names ranges of block ids, each in one container, with a token to write them. The pool hands the ids
//! out in order, renews grants while ids of them are in use or wanted, and fetches the next before the last is spent. All
//! writers of a process share it.
//!
//! ```text
//!   acquire ──▶ ids left ── take ──▶ BlockLease (a writer's) ──▶ block written ──▶ committed by the caller
//!                  │ half its life is over: renew where used since, else release
//!                  └ spent: expires at the OM by itself, which frees the ids that nobody committed
//! ```
//! Invariants: an id is handed out once; a range whose datanodes are avoided, or whose token is about to end, is not used;
//! a grant is never released while a writer holds one of its ids.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use ozone_common::id::{BlockId, ClientId, ContainerId, LOCAL_MAX};
use ozone_common::limits::SMALL_BLOCK_MAX;
use ozone_common::replication::Replication;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_proto::common::v1::{BlockRange, Token};
use ozone_proto::convert::{container_id, required};
use ozone_proto::om::v1 as om;
use ozone_rpc::data::Target;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::{Client, Inner};
use crate::context::CallContext;
use crate::exclude::Excluded;
use crate::locate::targets;
use crate::retry::Backoff;

/// A token that ends within this is not used to begin a block.
const TOKEN_MARGIN_MS: u64 = 5_000;
/// One attempt to get a grant; waiting writers go on asking until their own deadlines.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Ids asked for at first; every further grant of a class is twice as large, up to its limit.
const SMALL_FIRST: u32 = 16;
const LARGE_FIRST: u32 = 1;
/// LIMIT: large ids held ahead: each reserves a whole block's bytes in its container.
const LARGE_MAX: u32 = 4;
/// Shortest time between two looks at the grants.
const LOOK_MIN: Duration = Duration::from_secs(1);

/// Which ids are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Size {
    /// Blocks of one frame.
    Small,
    /// Blocks of chunks.
    Large,
}

type Class = (Replication, Size);

struct Grant {
    id: u64,
    holder: ClientId,
    min_replicas: usize,
    max_length: u64,
    /// Ids in writers' hands.
    held: AtomicUsize,
}

struct Range {
    grant: Arc<Grant>,
    container: ContainerId,
    next: u32,
    end: u32,
    epoch: u32,
    token: Token,
    replicas: Arc<[Target]>,
    members: Arc<[Bytes]>,
    /// There was no choice: used although its datanodes are avoided.
    forced: bool,
}

struct Live {
    grant: Arc<Grant>,
    renew_at: Instant,
    used: bool,
}

type Acquiring = Shared<BoxFuture<'static, Result<(), Error>>>;

#[derive(Default)]
struct ClassState {
    ranges: VecDeque<Range>,
    grants: Vec<Live>,
    /// Ids to ask for next time.
    want: u32,
    acquiring: Option<Acquiring>,
}

/// The pool.
pub struct LeasePool {
    small_max: u32,
    classes: Mutex<BTreeMap<Class, ClassState>>,
    keeper: Mutex<Option<DropGuard>>,
}

/// One block id in a writer's hands.
pub(crate) struct BlockLease {
    pub block: BlockId,
    pub epoch: u32,
    pub token: Token,
    pub replicas: Arc<[Target]>,
    pub members: Arc<[Bytes]>,
    pub min_replicas: usize,
    pub max_length: u64,
    pub hold: GrantHold,
}

/// Keeps a grant from ending while blocks of it are not committed.
pub(crate) struct GrantHold(Arc<Grant>);

impl GrantHold {
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Another hold on the same grant.
    pub(crate) fn share(&self) -> Self {
        self.0.held.fetch_add(1, Ordering::AcqRel);
        Self(self.0.clone())
    }
}

impl Drop for GrantHold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ClassState {
    fn ids_left(&self) -> u32 {
        self.ranges.iter().map(|range| range.end - range.next).sum()
    }

    fn take(&mut self, holder: ClientId, excluded: &Excluded, now_ms: u64) -> Option<BlockLease> {
        self.ranges.retain(|range| {
            range.grant.holder == holder
                && range.next < range.end
                && range.token.expires_ms > now_ms.saturating_add(TOKEN_MARGIN_MS)
        });
        let usable =
            |range: &Range| range.forced || !range.replicas.iter().any(|replica| excluded.contains(replica.datanode));
        let range = self.ranges.iter_mut().find(|range| usable(range))?;
        let block = range.container.block(range.next)?;
        range.next += 1;
        range.grant.held.fetch_add(1, Ordering::AcqRel);
        if let Some(live) = self.grants.iter_mut().find(|live| live.grant.id == range.grant.id) {
            live.used = true;
        }
        Some(BlockLease {
            block,
            epoch: range.epoch,
            token: range.token.clone(),
            replicas: range.replicas.clone(),
            members: range.members.clone(),
            min_replicas: range.grant.min_replicas,
            max_length: range.grant.max_length,
            hold: GrantHold(range.grant.clone()),
        })
    }
}

impl LeasePool {
    /// An empty pool that holds up to `small_max` ids of small blocks per replication.
    pub fn new(small_max: u32) -> Self {
        Self { small_max, classes: Mutex::default(), keeper: Mutex::default() }
    }

    /// An id for a new block. Waits for one until the context's deadline.
    ///
    /// # Errors
    /// What the OM says at the deadline (safe mode, too few datanodes, out of reach), or at once where it is final.
    pub(crate) async fn take(
        &self,
        client: &Client,
        ctx: &CallContext,
        replication: Replication,
        size: Size,
    ) -> Result<BlockLease, Error> {
        let inner = &client.inner;
        let mut backoff = Backoff::default();
        loop {
            let acquiring = {
                let (holder, now_ms) = (inner.om.client_id(), inner.env.clock.now_ms());
                let mut classes = self.classes.lock();
                let class = classes.entry((replication, size)).or_default();
                let lease = class.take(holder, &inner.excluded, now_ms);
                if let Some(lease) = lease {
                    // Small ids are fetched ahead; a large one costs one call per block of 256 MiB.
                    if size == Size::Small && class.acquiring.is_none() && class.ids_left() < class.want / 4 {
                        // Goes on by itself; whoever needs its outcome finds it in the class.
                        drop(self.acquire(client, class, replication, size));
                    }
                    return Ok(lease);
                }
                match &class.acquiring {
                    Some(acquiring) => acquiring.clone(),
                    None => self.acquire(client, class, replication, size),
                }
            };
            match timeout_at(ctx.deadline, acquiring).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if matches!(error.retry, RetryClass::Never | RetryClass::OtherReplica) => {
                    return Err(error);
                }
                Ok(Err(error)) => backoff.pause(error, ctx.deadline, &*inner.env.rng).await?,
                Err(_) => return Err(Error::new(ErrorCode::DeadlineExceeded, "no block ids could be had in time")),
            }
        }
    }

    /// Begins to get a grant, in a task of its own: whoever waits for it may go away.
    fn acquire(&self, client: &Client, class: &mut ClassState, replication: Replication, size: Size) -> Acquiring {
        class.want = match size {
            Size::Small => (class.want * 2).clamp(SMALL_FIRST, self.small_max.max(SMALL_FIRST)).min(self.small_max),
            Size::Large => (class.want * 2).clamp(LARGE_FIRST, LARGE_MAX),
        };
        let count = class.want;
        let owned = client.clone();
        let task = tokio::spawn(async move {
            let outcome = owned.acquire_blocks(replication, size, count).await;
            let pool = &owned.inner.leases;
            let mut classes = pool.classes.lock();
            let class = classes.entry((replication, size)).or_default();
            class.acquiring = None;
            let (live, ranges) = outcome?;
            class.grants.push(live);
            class.ranges.extend(ranges);
            drop(classes);
            pool.keep(&owned);
            Ok(())
        });
        let acquiring = task
            .map(|joined| joined.unwrap_or_else(|error| Err(Error::internal(format!("getting block ids: {error}")))))
            .boxed()
            .shared();
        class.acquiring = Some(acquiring.clone());
        acquiring
    }

    /// No block of this container is begun any more: it was closed, or lost a replica.
    pub(crate) fn forget(&self, container: ContainerId) {
        for class in self.classes.lock().values_mut() {
            class.ranges.retain(|range| range.container != container);
        }
    }

    /// Starts the task that renews, once.
    fn keep(&self, client: &Client) {
        let mut keeper = self.keeper.lock();
        if keeper.is_none() {
            let token = CancellationToken::new();
            let inner = Arc::downgrade(&client.inner);
            tokio::spawn(token.clone().run_until_cancelled_owned(keep_grants(inner)));
            *keeper = Some(token.drop_guard());
        }
    }

    fn next_look(&self) -> Option<Instant> {
        let classes = self.classes.lock();
        classes.values().flat_map(|class| &class.grants).map(|live| live.renew_at).min()
    }

    /// Grants whose half life is over, and whether each is still wanted; those that are not leave the pool.
    fn due(&self, now: Instant) -> Vec<(Class, u64, bool)> {
        let mut due = Vec::new();
        for (key, class) in self.classes.lock().iter_mut() {
            let ClassState { ranges, grants, .. } = class;
            grants.retain_mut(|live| {
                if live.renew_at > now {
                    return true;
                }
                let id = live.grant.id;
                let left = ranges.iter().any(|range| range.grant.id == id && range.next < range.end);
                let held = live.grant.held.load(Ordering::Acquire) > 0;
                let wanted = held || (left && live.used);
                if wanted || left {
                    due.push((*key, id, wanted));
                }
                if !wanted {
                    ranges.retain(|range| range.grant.id != id);
                    return false;
                }
                live.used = false;
                // Asked again soon where the answer does not come.
                live.renew_at = now + LOOK_MIN * 5;
                true
            });
        }
        due
    }

    /// Takes a renewed grant's expiry and tokens.
    fn renewed(&self, key: Class, grant: &om::Grant, renew_at: Instant) {
        if let Some(class) = self.classes.lock().get_mut(&key) {
            for live in class.grants.iter_mut().filter(|live| live.grant.id == grant.id) {
                live.renew_at = renew_at;
            }
            for range in class.ranges.iter_mut().filter(|range| range.grant.id == grant.id) {
                let fresh = grant.ranges.iter().find(|fresh| fresh.container == range.container.get());
                // A raised epoch means that the container lost a replica: its ids are not used any more.
                match fresh.and_then(|fresh| fresh.token.clone().filter(|_| fresh.epoch == range.epoch)) {
                    Some(token) => range.token = token,
                    None => range.next = range.end,
                }
            }
        }
    }

    fn ended(&self, key: Class, grant: u64) {
        if let Some(class) = self.classes.lock().get_mut(&key) {
            class.grants.retain(|live| live.grant.id != grant);
            class.ranges.retain(|range| range.grant.id != grant);
        }
    }

    /// Gives everything back. Blocks written under these grants must have been committed.
    pub(crate) async fn release_all(&self, client: &Client) {
        self.keeper.lock().take();
        let classes = std::mem::take(&mut *self.classes.lock());
        let ids = classes.values().flat_map(|class| &class.grants).map(|live| live.grant.id);
        let ctx = CallContext::new("shutdown", None, ACQUIRE_TIMEOUT);
        futures::future::join_all(ids.map(|grant| client.release(&ctx, grant))).await;
    }
}

/// When to look at a grant that ends at `expires_ms`.
fn half_life(expires_ms: u64, now_ms: u64) -> Instant {
    let left = Duration::from_millis(expires_ms.saturating_sub(now_ms).min(24 * 3600 * 1000));
    Instant::now() + (left / 2).max(LOOK_MIN)
}

impl Client {
    async fn acquire_blocks(
        &self,
        replication: Replication,
        size: Size,
        blocks: u32,
    ) -> Result<(Live, Vec<Range>), Error> {
        let inner = &self.inner;
        let ctx = CallContext::new("block-ids", None, ACQUIRE_TIMEOUT);
        let exclude = inner.excluded.now();
        let mut request = om::AcquireGrant {
            replication: replication.to_string(),
            blocks,
            max_block_length: match size {
                Size::Small => SMALL_BLOCK_MAX as u64,
                Size::Large => inner.tuning.block_size.get(),
            },
            exclude: exclude.iter().map(|node| Bytes::copy_from_slice(node.as_bytes())).collect(),
        };
        let holder = inner.om.client_id();
        let outcome = self.acquire_grant_once(&ctx, request.clone()).await;
        let (grant, forced) = match outcome {
            Err(error) if error.code == ErrorCode::InsufficientDatanodes && !exclude.is_empty() => {
                // Better a datanode that failed lately than none.
                request.exclude.clear();
                (self.acquire_grant_once(&ctx, request).await?, true)
            }
            outcome => (outcome?, false),
        };
        let shared = Arc::new(Grant {
            id: grant.id,
            holder,
            min_replicas: usize::try_from(grant.min_replicas).unwrap_or(usize::MAX).max(1),
            max_length: grant.max_block_length,
            held: AtomicUsize::new(0),
        });
        let ranges = grant.ranges.into_iter().map(|range| range_of(range, &shared, forced));
        let ranges = ranges.collect::<Result<Vec<Range>, Error>>()?;
        if ranges.is_empty() {
            return Err(Error::internal("the OM granted no blocks"));
        }
        let renew_at = half_life(grant.expires_ms, inner.env.clock.now_ms());
        Ok((Live { grant: shared, renew_at, used: true }, ranges))
    }

    async fn release(&self, ctx: &CallContext, grant: u64) {
        if let Err(error) = self.release_grant(ctx, om::ReleaseGrant { grant }).await {
            // It expires by itself.
            tracing::debug!(grant, error = %error, "grant not released");
        }
    }

    async fn look_after(&self, key: Class, grant: u64, wanted: bool) {
        let ctx = CallContext::new("block-ids", None, ACQUIRE_TIMEOUT);
        if !wanted {
            return self.release(&ctx, grant).await;
        }
        match self.renew_grant(&ctx, om::RenewGrant { grant }).await {
            Ok(renewed) => {
                let renew_at = half_life(renewed.expires_ms, self.inner.env.clock.now_ms());
                self.inner.leases.renewed(key, &renewed, renew_at);
            }
            Err(error) => {
                tracing::warn!(grant, error = %error, "grant not renewed");
                if error.code == ErrorCode::GrantExpired {
                    self.inner.leases.ended(key, grant);
                }
            }
        }
    }
}

fn range_of(range: BlockRange, grant: &Arc<Grant>, forced: bool) -> Result<Range, Error> {
    let replicas = targets(&range.replicas)?;
    if replicas.len() < grant.min_replicas {
        return Err(Error::new(
            ErrorCode::InsufficientDatanodes,
            format!(
                "container {} has {} datanodes; {} are needed",
                range.container,
                replicas.len(),
                grant.min_replicas
            ),
        ));
    }
    let end = range.first_local.checked_add(range.count).filter(|end| *end <= LOCAL_MAX + 1);
    Ok(Range {
        grant: grant.clone(),
        container: container_id(range.container)?,
        next: range.first_local,
        end: end.ok_or_else(|| Error::invalid("a granted range goes beyond its container"))?,
        epoch: range.epoch,
        token: required(range.token, "token")?,
        members: replicas.iter().map(|replica| Bytes::copy_from_slice(replica.datanode.as_bytes())).collect(),
        replicas: replicas.into(),
        forced,
    })
}

/// Renews and releases grants for as long as the client lives.
async fn keep_grants(inner: Weak<Inner>) {
    loop {
        let Some(look) = inner.upgrade().map(|inner| inner.leases.next_look()) else { return };
        let now = Instant::now();
        let earliest = now + LOOK_MIN;
        tokio::time::sleep_until(look.unwrap_or(now + LOOK_MIN * 60).clamp(earliest, now + LOOK_MIN * 60)).await;
        let Some(inner) = inner.upgrade() else { return };
        let client = Client { inner };
        let due = client.inner.leases.due(Instant::now());
        for (key, grant, wanted) in due {
            client.look_after(key, grant, wanted).await;
        }
    }
}
