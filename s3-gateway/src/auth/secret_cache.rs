//! Secrets of access keys, as the OM has them, kept for seconds.
//!
//! Bounds: at most [`ENTRIES_MAX`] secrets, none older than its life, so that one that was revoked works no longer than that. In the
//! second half of its life a secret is fetched anew by one request, while others go on with the one at hand. Unknown access keys are not
//! kept: a secret works from the moment it is made.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use ozone_client::proto::om::v1::Secret;
use ozone_common::env::Clock;
use ozone_common::{Error, ErrorCode};
use parking_lot::Mutex;
use ring::hmac;

use super::sigv4::signing_key;
use crate::error::{S3Code, S3Error, S3Result};

// LIMIT: secrets kept.
const ENTRIES_MAX: usize = 10_000;
// LIMIT: characters of an access key that is asked for.
const ACCESS_KEY_MAX: usize = 256;

/// Asks the OM for the secret of an access key.
pub(crate) type Lookup = Box<dyn Fn(String) -> BoxFuture<'static, Result<Secret, Error>> + Send + Sync>;

/// A secret, and the signing key made of it last.
pub(super) struct Known {
    pub user: Arc<str>,
    secret: String,
    fetched: Duration,
    refreshing: AtomicBool,
    key: Mutex<Option<(String, hmac::Key)>>,
}

impl Known {
    /// The secret itself, for signatures that know no keys of days.
    pub fn secret(&self) -> &[u8] {
        self.secret.as_bytes()
    }

    /// The signing key of a day and a region: of one day after the other, hence one is kept.
    pub fn signing_key(&self, day: &str, region: &str) -> hmac::Key {
        let mut kept = self.key.lock();
        match &*kept {
            Some((of, key)) if of == day => key.clone(),
            _ => {
                let key = signing_key(self.secret.as_bytes(), day, region);
                *kept = Some((day.to_owned(), key.clone()));
                key
            }
        }
    }
}

/// The cache.
pub(super) struct SecretCache {
    lookup: Lookup,
    clock: Arc<dyn Clock>,
    life: Duration,
    known: Mutex<HashMap<String, Arc<Known>>>,
}

impl SecretCache {
    pub fn new(lookup: Lookup, clock: Arc<dyn Clock>, life: Duration) -> Self {
        Self { lookup, clock, life, known: Mutex::default() }
    }

    /// The secret of an access key.
    ///
    /// # Errors
    /// `InvalidAccessKeyId`; 503 where the OM cannot be asked.
    pub async fn get(&self, access_key: &str) -> S3Result<Arc<Known>> {
        let found = self.known.lock().get(access_key).cloned();
        if let Some(known) = &found {
            let age = self.clock.boot().saturating_sub(known.fetched);
            let fresh = age < self.life / 2;
            if fresh || age < self.life && known.refreshing.swap(true, Ordering::Relaxed) {
                return Ok(known.clone());
            }
        }
        let fetched = self.fetch(access_key, found.as_ref()).await;
        if let (Err(error), Some(known)) = (&fetched, &found) {
            known.refreshing.store(false, Ordering::Relaxed);
            if error.code == S3Code::InvalidAccessKeyId {
                self.known.lock().remove(access_key);
            } else if self.clock.boot().saturating_sub(known.fetched) < self.life {
                return Ok(known.clone());
            }
        }
        fetched
    }

    async fn fetch(&self, access_key: &str, before: Option<&Arc<Known>>) -> S3Result<Arc<Known>> {
        if access_key.len() > ACCESS_KEY_MAX {
            return Err(unknown(access_key));
        }
        // The time before the question: the answer is no younger.
        let fetched = self.clock.boot();
        let secret = (self.lookup)(access_key.to_owned()).await.map_err(|error| match error.code {
            ErrorCode::SecretNotFound => unknown(access_key),
            _ => S3Error::from(error.context("the secret of the access key")),
        })?;
        let unchanged = before.filter(|before| before.secret == secret.secret_key);
        let known = Arc::new(Known {
            user: secret.user.into(),
            key: Mutex::new(unchanged.and_then(|before| before.key.lock().clone())),
            secret: secret.secret_key,
            fetched,
            refreshing: AtomicBool::new(false),
        });
        let mut all = self.known.lock();
        if all.len() >= ENTRIES_MAX && !all.contains_key(access_key) {
            all.retain(|_, known| fetched.saturating_sub(known.fetched) < self.life);
            if all.len() >= ENTRIES_MAX {
                all.clear();
            }
        }
        all.insert(access_key.to_owned(), known.clone());
        Ok(known)
    }
}

fn unknown(access_key: &str) -> S3Error {
    let shown: String = access_key.chars().take(ACCESS_KEY_MAX).collect();
    S3Error::from(S3Code::InvalidAccessKeyId).detail("AWSAccessKeyId", shown)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use ozone_common::env::ManualClock;

    use super::*;

    struct World {
        clock: Arc<ManualClock>,
        asked: Arc<AtomicUsize>,
        answer: Arc<Mutex<Result<&'static str, ErrorCode>>>,
        cache: SecretCache,
    }

    fn world() -> World {
        let clock = Arc::new(ManualClock::at(0));
        let asked = Arc::new(AtomicUsize::new(0));
        let answer = Arc::new(Mutex::new(Ok("s1")));
        let (count, told) = (asked.clone(), answer.clone());
        let lookup: Lookup = Box::new(move |access_key| {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = *told.lock();
            Box::pin(async move {
                match answer {
                    Ok(secret) => {
                        Ok(Secret { access_key, secret_key: secret.into(), user: "alice".into(), created: false })
                    }
                    Err(code) => Err(Error::new(code, "no")),
                }
            })
        });
        let cache = SecretCache::new(lookup, clock.clone(), Duration::from_secs(10));
        World { clock, asked, answer, cache }
    }

    impl World {
        async fn check(&self, expected: Result<&str, S3Code>, asked: usize) {
            let got = self.cache.get("AK").await.map(|known| known.secret.clone()).map_err(|error| error.code);
            assert_eq!(got, expected.map(str::to_owned));
            assert_eq!(self.asked.load(Ordering::SeqCst), asked);
        }
    }

    #[tokio::test]
    async fn secrets_are_kept_for_their_life_and_renewed_in_its_second_half() {
        let world = world();
        world.check(Ok("s1"), 1).await;
        world.clock.advance(4_999);
        world.check(Ok("s1"), 1).await;
        *world.answer.lock() = Ok("s2");
        world.clock.advance(1);
        world.check(Ok("s2"), 2).await;
        *world.answer.lock() = Err(ErrorCode::Unavailable);
        world.clock.advance(5_000);
        world.check(Ok("s2"), 3).await;
        world.clock.advance(5_000);
        world.check(Err(S3Code::ServiceUnavailable), 4).await;
    }

    #[tokio::test]
    async fn revoked_and_unknown_keys_are_refused() {
        let world = world();
        world.check(Ok("s1"), 1).await;
        *world.answer.lock() = Err(ErrorCode::SecretNotFound);
        world.clock.advance(6_000);
        world.check(Err(S3Code::InvalidAccessKeyId), 2).await;
        world.check(Err(S3Code::InvalidAccessKeyId), 3).await;
        *world.answer.lock() = Ok("s3");
        world.check(Ok("s3"), 4).await;
        let long = "x".repeat(ACCESS_KEY_MAX + 1);
        assert_eq!(world.cache.get(&long).await.err().unwrap().code, S3Code::InvalidAccessKeyId);
        assert_eq!(world.asked.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn the_signing_key_is_that_of_the_day() {
        let world = world();
        let known = world.cache.get("AK").await.unwrap();
        let sign = |key: &hmac::Key| hmac::sign(key, b"x").as_ref().to_vec();
        let first = known.signing_key("20130524", "us-east-1");
        assert_eq!(sign(&first), sign(&known.signing_key("20130524", "us-east-1")));
        assert_ne!(sign(&first), sign(&known.signing_key("20130525", "us-east-1")));
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let world = world();
        for number in 0..ENTRIES_MAX + 5 {
            world.cache.get(&format!("AK{number}")).await.unwrap();
        }
        assert!(world.cache.known.lock().len() <= ENTRIES_MAX);
    }
}
