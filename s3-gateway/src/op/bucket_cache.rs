//! What a write has to know of its bucket (replication, durability, inline values), kept for a short while: a PUT should not ask for
//! it each time.
//!
//! Being stale is harmless: a commit names the bucket's id, so that bytes written for one are refused by another of the same name, and
//! whether a value may be inline is judged there too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ozone_client::proto::om::v1 as om;
use ozone_common::env::Clock;
use parking_lot::Mutex;

/// How long a bucket is believed to be as it was.
const LIFE: Duration = Duration::from_secs(2);
/// LIMIT: buckets kept.
const BUCKETS_MAX: usize = 4096;

/// Buckets looked up lately, by name.
pub(crate) struct BucketCache {
    clock: Arc<dyn Clock>,
    buckets: Mutex<HashMap<String, (Duration, Arc<om::BucketInfo>)>>,
}

impl BucketCache {
    /// An empty one.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, buckets: Mutex::default() }
    }

    /// A bucket that was looked up within [`LIFE`].
    pub fn get(&self, name: &str) -> Option<Arc<om::BucketInfo>> {
        let now = self.clock.boot();
        let buckets = self.buckets.lock();
        buckets.get(name).filter(|(until, _)| now < *until).map(|(_, info)| info.clone())
    }

    /// Keeps a bucket as it is now.
    pub fn put(&self, name: &str, info: om::BucketInfo) -> Arc<om::BucketInfo> {
        let now = self.clock.boot();
        let info = Arc::new(info);
        let mut buckets = self.buckets.lock();
        if buckets.len() >= BUCKETS_MAX {
            buckets.retain(|_, (until, _)| now < *until);
            if buckets.len() >= BUCKETS_MAX {
                buckets.clear();
            }
        }
        buckets.insert(name.to_owned(), (now + LIFE, info.clone()));
        info
    }

    /// Forgets a bucket.
    pub fn forget(&self, name: &str) {
        self.buckets.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ozone_common::env::ManualClock;

    #[test]
    fn buckets_are_believed_for_a_while_and_their_number_is_bounded() {
        let clock = Arc::new(ManualClock::at(0));
        let cache = BucketCache::new(clock.clone());
        cache.put("b", om::BucketInfo { id: 7, ..Default::default() });
        assert_eq!(cache.get("b").unwrap().id, 7);
        cache.forget("b");
        assert!(cache.get("b").is_none());
        cache.put("b", om::BucketInfo::default());
        clock.advance(LIFE.as_millis() as u64);
        assert!(cache.get("b").is_none());
        for number in 0..BUCKETS_MAX * 2 {
            cache.put(&number.to_string(), om::BucketInfo::default());
        }
        assert!(cache.buckets.lock().len() <= BUCKETS_MAX);
    }
}
