//! What the leader knows of callers' sessions, so that a call has effect once.
//!
//! ```text
//!  table "retry":  client (16 bytes) ‖ slot (2 bytes) → sequence, answer      ""  → births up to which sessions were expired
//! ```
//! - The answer of a call that changed rows is a row of the same batch. A repeat of the call finds it. A call without rows had no
//!   effect and leaves nothing: a repeat is executed.
//! - A slot whose call was answered (its sequence is below the session's lowest unanswered) is taken by a later call, so a session has as many
//!   rows as calls were ever in flight at once, and none is deleted before the session ends.
//! - Sessions are bounded. The one that was silent longest is expired for a new one; its rows go. That its calls are never executed
//!   afterwards rests on births: a client id carries the time at which it was made, the latest birth among expired sessions is kept, and
//!   an unknown session born no later is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use ozone_common::id::ClientId;
use ozone_common::limits::SESSION_CALLS_MAX;
use ozone_common::{Error, ErrorCode, RetryClass};
use ozone_kvstore::{Batch, Direction, Read, Table};
use prost::Message;

use crate::call::Call;

/// Holds the answers.
pub(super) const TABLE: Table = Table("retry");
const EXPIRED_KEY: &[u8] = b"";

/// LIMIT: sessions with answers.
pub(super) const SESSIONS_MAX: usize = 32 << 10;
/// A session is not expired for another's sake before it was silent for so long.
const SILENCE_MIN_MS: u64 = 60_000;
/// How much later than this member's clock a client may be born.
const BIRTH_AHEAD_MAX_MS: u64 = 10 * 60_000;
/// How exactly the time of a session's last call is kept.
const LAST_RESOLUTION_MS: u64 = 1_000;

const _: () = assert!(SESSION_CALLS_MAX <= u16::MAX as usize, "a slot's number has two bytes");

/// What is to be done with a call.
#[derive(Debug)]
pub(super) enum Admission {
    /// Execute it.
    New,
    /// It was executed: the answer is in the row of this key.
    Repeat(Bytes),
    /// Neither.
    Refuse(Error),
}

#[derive(Clone, PartialEq, Message)]
struct AnswerRow {
    #[prost(uint64, tag = "1")]
    sequence: u64,
    #[prost(uint64, tag = "2")]
    lowest_unanswered: u64,
    #[prost(uint64, tag = "3")]
    now_ms: u64,
    #[prost(bytes = "bytes", tag = "4")]
    response: Bytes,
    #[prost(message, optional, tag = "5")]
    error: Option<ErrorRow>,
}

#[derive(Clone, PartialEq, Message)]
struct ErrorRow {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(uint32, tag = "2")]
    retry: u32,
    #[prost(string, tag = "3")]
    message: String,
}

#[derive(Debug, Default)]
struct Session {
    lowest_unanswered: u64,
    last_ms: u64,
    /// Slots by the sequence whose answer they hold.
    answers: BTreeMap<u64, u16>,
    free: Vec<u16>,
    slots: u16,
}

impl Session {
    /// Calls below are answered: their slots may be taken.
    fn forget_below(&mut self, lowest: u64) {
        self.lowest_unanswered = self.lowest_unanswered.max(lowest);
        while let Some(entry) = self.answers.first_entry()
            && *entry.key() < self.lowest_unanswered
        {
            self.free.push(entry.remove());
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sessions {
    sessions: BTreeMap<ClientId, Session>,
    /// (last call, session), to find the one that is silent longest.
    by_silence: BTreeSet<(u64, ClientId)>,
    /// The latest birth of an expired session.
    expired_births_ms: u64,
    sessions_max: usize,
}

impl Sessions {
    /// Reads them from the applied rows.
    pub fn load(store: &dyn Read, sessions_max: usize) -> ozone_kvstore::Result<Self> {
        let mut all =
            Self { sessions: BTreeMap::new(), by_silence: BTreeSet::new(), expired_births_ms: 0, sessions_max };
        for row in store.scan(TABLE, Bound::Unbounded, Bound::Unbounded, Direction::Forward)? {
            let (key, value) = row?;
            if key.is_empty() {
                let births = value[..].try_into().map_err(|_| corrupt("the births of expired sessions"))?;
                all.expired_births_ms = u64::from_be_bytes(births);
                continue;
            }
            let (client, slot) = split(&key).ok_or_else(|| corrupt("the key of an answer"))?;
            let answer = AnswerRow::decode(value).map_err(|error| corrupt(&error.to_string()))?;
            let session = all.sessions.entry(client).or_default();
            session.slots = session.slots.max(slot + 1);
            session.lowest_unanswered = session.lowest_unanswered.max(answer.lowest_unanswered);
            session.last_ms = session.last_ms.max(answer.now_ms);
            session.answers.insert(answer.sequence, slot);
        }
        for (client, session) in &mut all.sessions {
            session.forget_below(session.lowest_unanswered);
            all.by_silence.insert((session.last_ms, *client));
        }
        Ok(all)
    }

    /// Sessions with answers.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// What is to be done with a call.
    pub fn admit(&mut self, call: &Call, now_ms: u64) -> Admission {
        let Some(session) = self.sessions.get_mut(&call.client) else {
            return self.admit_unknown(call.client, now_ms).map_or_else(Admission::Refuse, |()| Admission::New);
        };
        session.forget_below(call.lowest_unanswered);
        if let Some(slot) = session.answers.get(&call.sequence) {
            return Admission::Repeat(key(call.client, *slot));
        }
        if call.sequence < session.lowest_unanswered {
            let text = format!(
                "call {} of a session was answered before: its lowest unanswered call is {}",
                call.sequence, session.lowest_unanswered
            );
            return Admission::Refuse(Error::invalid(text));
        }
        if session.answers.len() >= SESSION_CALLS_MAX {
            let text = format!(
                "{SESSION_CALLS_MAX} answers of a session are kept already; at most so many calls may be in flight"
            );
            return Admission::Refuse(Error::new(ErrorCode::Overloaded, text));
        }
        Admission::New
    }

    fn admit_unknown(&self, client: ClientId, now_ms: u64) -> Result<(), Error> {
        let Some(born_ms) = client.born_ms() else {
            return Err(Error::invalid("the client's id does not carry the time of its birth"));
        };
        if born_ms > now_ms + BIRTH_AHEAD_MAX_MS {
            let text = format!("the client's clock is {} ms ahead", born_ms - now_ms);
            return Err(Error::invalid(text));
        }
        if born_ms <= self.expired_births_ms {
            return Err(Error::new(
                ErrorCode::SessionExpired,
                "the session is not known, and sessions as old as it were expired",
            ));
        }
        let silent = self.by_silence.first().map(|(last_ms, _)| now_ms.saturating_sub(*last_ms));
        if self.sessions.len() >= self.sessions_max && silent.is_some_and(|silent| silent < SILENCE_MIN_MS) {
            let text = format!("{} sessions are kept, and all of them are in use", self.sessions_max);
            return Err(Error::new(ErrorCode::Overloaded, text));
        }
        Ok(())
    }

    /// Keeps the answer of a call that was admitted as new, in the batch of its rows.
    pub fn record(&mut self, call: &Call, now_ms: u64, reply: &Result<Bytes, Error>, batch: &mut Batch) {
        if !self.sessions.contains_key(&call.client) {
            self.expire_for_one_more(batch);
            self.by_silence.insert((now_ms, call.client));
            self.sessions.insert(call.client, Session { last_ms: now_ms, ..Session::default() });
        }
        let Some(session) = self.sessions.get_mut(&call.client) else { return };
        session.forget_below(call.lowest_unanswered);
        if now_ms >= session.last_ms + LAST_RESOLUTION_MS {
            self.by_silence.remove(&(session.last_ms, call.client));
            session.last_ms = now_ms;
            self.by_silence.insert((now_ms, call.client));
        }
        let slot = session.free.pop().unwrap_or_else(|| {
            session.slots += 1;
            session.slots - 1
        });
        session.answers.insert(call.sequence, slot);
        let mut row = AnswerRow {
            sequence: call.sequence,
            lowest_unanswered: session.lowest_unanswered,
            now_ms: session.last_ms,
            ..AnswerRow::default()
        };
        match reply {
            Ok(response) => row.response = response.clone(),
            Err(error) => {
                row.error = Some(ErrorRow {
                    code: error.code as u32,
                    retry: error.retry as u32,
                    message: error.message.clone(),
                });
            }
        }
        batch.put(TABLE, key(call.client, slot), row.encode_to_vec());
    }

    /// ORDER: in the batch that lets a new session in, so that both are known or neither is.
    fn expire_for_one_more(&mut self, batch: &mut Batch) {
        while self.sessions.len() >= self.sessions_max
            && let Some((_, client)) = self.by_silence.pop_first()
        {
            let slots = self.sessions.remove(&client).map_or(0, |session| session.slots);
            for slot in 0..slots {
                batch.delete(TABLE, key(client, slot));
            }
            self.expired_births_ms = self.expired_births_ms.max(client.born_ms().unwrap_or(0));
            batch.put(TABLE, EXPIRED_KEY, self.expired_births_ms.to_be_bytes().to_vec());
        }
    }
}

/// The answer in a row that [`Admission::Repeat`] named.
pub(super) fn answer(view: &dyn Read, key: &[u8]) -> ozone_kvstore::Result<Result<Bytes, Error>> {
    let row = view.get(TABLE, key)?.ok_or_else(|| corrupt("the answer of a call is gone"))?;
    let row = AnswerRow::decode(row).map_err(|error| corrupt(&error.to_string()))?;
    Ok(match row.error {
        None => Ok(row.response),
        Some(error) => Err(Error::new(ErrorCode::from_number(error.code), error.message)
            .with_retry(RetryClass::from_number(error.retry))),
    })
}

fn key(client: ClientId, slot: u16) -> Bytes {
    [&client.as_bytes()[..], &slot.to_be_bytes()].concat().into()
}

fn split(key: &[u8]) -> Option<(ClientId, u16)> {
    let (client, slot) = key.split_first_chunk::<16>()?;
    Some((ClientId::from_bytes(*client), u16::from_be_bytes(slot.try_into().ok()?)))
}

fn corrupt(detail: &str) -> ozone_kvstore::Error {
    ozone_kvstore::Error::Corrupt { attempted: format!("read a row of table `{}`", TABLE.0), detail: detail.to_owned() }
}
