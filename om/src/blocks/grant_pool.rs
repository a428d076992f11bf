//! Block ranges fetched ahead from the SCM, handed out to writers.
//!
//! A request is served from one container where possible, so that the small PUTs of one writer land in one container and its datanodes
//! sync one file. Ids leave the pool once: those of a crashed OM are never used again and hold no bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ozone_common::Error;
use ozone_common::env::Clock;
use ozone_common::id::ContainerId;
use ozone_common::limits::SMALL_BLOCK_MAX;
use ozone_common::replication::Replication;
use ozone_proto::common::v1::BlockRange;
use ozone_proto::convert::container_id;
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};
use parking_lot::Mutex;

use super::location_cache::LocationCache;
use super::scm_client::{Scm, unexpected};
use crate::tables::grant::GrantRange;

/// Bytes that a block of the small class is reckoned to take in its container: most are far below their bound.
const SMALL_RESERVE: u64 = 64 << 10;
/// The same for large ones.
const LARGE_RESERVE: u64 = 16 << 20;

/// Which blocks are alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Class {
    replication: Replication,
    large: bool,
}

/// What a writer wants.
#[derive(Clone, Debug)]
pub struct Want {
    /// Copies.
    pub replication: Replication,
    /// Blocks.
    pub count: u32,
    /// Bytes per block.
    pub max_block_length: u64,
    /// Datanodes that must not hold them.
    pub exclude: Vec<Bytes>,
}

impl Want {
    const fn class(&self) -> Class {
        Class { replication: self.replication, large: self.max_block_length > SMALL_BLOCK_MAX as u64 }
    }
}

/// What a writer gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Taken {
    /// At most one range per container.
    pub ranges: Vec<GrantRange>,
    /// Fewest replicas with which a block may be committed.
    pub min_replicas: u32,
}

struct Stocked {
    range: BlockRange,
    container: ContainerId,
    good_until_ms: u64,
}

#[derive(Default)]
struct Stock {
    ranges: VecDeque<Stocked>,
    min_replicas: u32,
}

/// Sizes and lives.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// Ids fetched at once, small blocks.
    pub small_blocks: u32,
    /// The same, large blocks.
    pub large_blocks: u32,
    /// How long ids are good.
    pub life_ms: u64,
}

/// See the module.
pub struct GrantPool {
    scm: Arc<dyn Scm>,
    locations: Arc<LocationCache>,
    clock: Arc<dyn Clock>,
    settings: PoolSettings,
    stocks: Mutex<BTreeMap<Class, Stock>>,
    /// One fetch at a time; those who wait find what it brought.
    fetching: tokio::sync::Mutex<()>,
    misses: metrics::Counter,
    size: metrics::Gauge,
}

impl GrantPool {
    /// An empty one.
    pub fn new(
        scm: Arc<dyn Scm>,
        locations: Arc<LocationCache>,
        clock: Arc<dyn Clock>,
        settings: PoolSettings,
        misses: metrics::Counter,
        size: metrics::Gauge,
    ) -> Self {
        let (stocks, fetching) = (Mutex::default(), tokio::sync::Mutex::new(()));
        Self { scm, locations, clock, settings, stocks, fetching, misses, size }
    }

    fn now_ms(&self) -> u64 {
        self.clock.boot().as_millis() as u64
    }

    const fn fetch_count(&self, class: Class) -> u32 {
        if class.large { self.settings.large_blocks } else { self.settings.small_blocks }
    }

    /// Takes blocks, from the stock or the SCM; perhaps fewer than wanted, at least one.
    ///
    /// cancel-safe: a range is taken whole when the future ends, or not at all.
    ///
    /// # Errors
    /// What the SCM answers: `SafeMode`, `InsufficientDatanodes`, …
    pub async fn take(&self, want: &Want) -> Result<Taken, Error> {
        if let Some(taken) = self.take_stocked(want) {
            return Ok(taken);
        }
        let _one = self.fetching.lock().await;
        if let Some(taken) = self.take_stocked(want) {
            return Ok(taken);
        }
        self.misses.increment(1);
        self.fetch(want).await?;
        self.take_stocked(want).ok_or_else(|| {
            Error::new(
                ozone_common::ErrorCode::InsufficientDatanodes,
                "the SCM has no container outside the excluded datanodes",
            )
        })
    }

    /// Whether a fetch ahead is due: less than half is left.
    pub fn is_low(&self, want: &Want) -> bool {
        let stocks = self.stocks.lock();
        let left = stocks.get(&want.class()).map_or(0, |stock| stock.ranges.iter().map(|r| r.range.count).sum());
        left < self.fetch_count(want.class()) / 2
    }

    /// Fetches ahead unless somebody does already.
    pub async fn refill(&self, want: &Want) -> Result<(), Error> {
        match self.fetching.try_lock() {
            Ok(_one) if self.is_low(want) => self.fetch(&Want { exclude: Vec::new(), ..want.clone() }).await,
            _ => Ok(()),
        }
    }

    async fn fetch(&self, want: &Want) -> Result<(), Error> {
        let class = want.class();
        let count = self.fetch_count(class).max(want.count);
        let (length, reserve) = if class.large {
            (ozone_common::limits::BLOCK_LENGTH_MAX, LARGE_RESERVE)
        } else {
            (SMALL_BLOCK_MAX as u64, SMALL_RESERVE)
        };
        let op = scm_request::Op::AllocateBlocks(scm::AllocateBlocks {
            replication: want.replication.to_string(),
            count,
            max_block_length: length,
            exclude: want.exclude.clone(),
            reserve_bytes: u64::from(count) * reserve,
        });
        let scm_response::Op::AllocatedBlocks(got) = self.scm.call(op).await? else {
            return Err(unexpected("AllocateBlocks"));
        };
        let good_until_ms = self.now_ms().saturating_add(self.settings.life_ms);
        let mut new = Vec::with_capacity(got.ranges.len());
        for range in got.ranges {
            let container = container_id(range.container)?;
            self.locations.learn(container, range.replicas.clone(), range.epoch);
            if range.count != 0 && !range.replicas.is_empty() {
                new.push(Stocked { range, container, good_until_ms });
            }
        }
        let mut stocks = self.stocks.lock();
        let stock = stocks.entry(class).or_default();
        stock.ranges.extend(new);
        stock.min_replicas = got.min_replicas.max(1);
        self.report(&stocks);
        Ok(())
    }

    fn report(&self, stocks: &BTreeMap<Class, Stock>) {
        let blocks: u64 = stocks.values().flat_map(|s| &s.ranges).map(|r| u64::from(r.range.count)).sum();
        self.size.set(blocks as f64);
    }

    fn take_stocked(&self, want: &Want) -> Option<Taken> {
        let now_ms = self.now_ms();
        let mut stocks = self.stocks.lock();
        let stock = stocks.get_mut(&want.class())?;
        stock.ranges.retain(|stocked| stocked.good_until_ms > now_ms);
        let mut ranges: Vec<GrantRange> = Vec::new();
        let mut got = 0;
        for stocked in &mut stock.ranges {
            let excluded = stocked.range.replicas.iter().any(|node| want.exclude.contains(&node.datanode));
            if excluded || ranges.iter().any(|range| range.container == stocked.container.get()) {
                continue;
            }
            let count = stocked.range.count.min(want.count - got);
            ranges.push(GrantRange {
                container: stocked.container.get(),
                first_local: stocked.range.first_local,
                count,
                epoch: stocked.range.epoch,
                epoch_raised: 0,
            });
            stocked.range.first_local += count;
            stocked.range.count -= count;
            got += count;
            // A good half from one container is better than all from two.
            if got >= want.count.div_ceil(2) {
                break;
            }
        }
        stock.ranges.retain(|stocked| stocked.range.count != 0);
        let min_replicas = stock.min_replicas;
        self.report(&stocks);
        (!ranges.is_empty()).then_some(Taken { ranges, min_replicas })
    }

    /// Takes ranges back that no grant got.
    pub fn give_back(&self, want: &Want, taken: &Taken) {
        let good_until_ms = self.now_ms().saturating_add(self.settings.life_ms);
        let mut stocks = self.stocks.lock();
        let stock = stocks.entry(want.class()).or_default();
        stock.min_replicas = taken.min_replicas;
        for range in &taken.ranges {
            let Some(container) = ContainerId::new(range.container) else { continue };
            let Some(location) = self.locations.peek(container, false) else { continue };
            let range = BlockRange {
                container: range.container,
                first_local: range.first_local,
                count: range.count,
                epoch: range.epoch,
                replicas: location.members.clone(),
                token: None,
            };
            stock.ranges.push_front(Stocked { range, container, good_until_ms });
        }
        self.report(&stocks);
    }

    /// Forgets the ranges of a container that lost replicas or takes no more blocks.
    pub fn forget(&self, container: ContainerId) {
        let mut stocks = self.stocks.lock();
        for stock in stocks.values_mut() {
            stock.ranges.retain(|stocked| stocked.container != container);
        }
        self.report(&stocks);
    }
}
