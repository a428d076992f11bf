//! How the service stands.

use bytes::Bytes;
use ozone_common::Error;
use ozone_proto::om::v1::{self as om, om_response::Op};
use ozone_proto::scm::v1::{self as scm, scm_request, scm_response};
use parking_lot::Mutex;

use super::{Om, SHARD_MAP_VERSION, reply};
use crate::log::Log;

/// How long an answer of the SCM about safe mode is good.
const FRESH_MS: u64 = 200;

/// Whether grants can be had, as last heard: when, and what holds it where not.
#[derive(Default)]
pub(super) struct Writable(Mutex<Option<(u64, Option<String>)>>);

impl<L: Log> Om<L> {
    pub(super) async fn status(&self) -> Result<Bytes, Error> {
        let obstacle = self.obstacle().await;
        let state = self.log.state();
        Ok(reply(Op::Status(om::StatusReply {
            cluster: Bytes::copy_from_slice(self.cluster.as_bytes()),
            term: state.term,
            applied: state.applied,
            leader: state.leader,
            members: state.members,
            shard_map_version: SHARD_MAP_VERSION,
            writable: obstacle.is_none(),
            writable_reason: obstacle.unwrap_or_default(),
        })))
    }

    /// What keeps writers from grants.
    async fn obstacle(&self) -> Option<String> {
        let now_ms = self.env.clock.boot().as_millis() as u64;
        if let Some((at_ms, obstacle)) = &*self.writable.0.lock()
            && now_ms.saturating_sub(*at_ms) < FRESH_MS
        {
            return obstacle.clone();
        }
        let asked = self.scm.call(scm_request::Op::SafeModeStatus(scm::SafeModeStatus {})).await;
        let obstacle = match asked {
            Ok(scm_response::Op::SafeMode(reply)) if reply.in_safe_mode => {
                let rules = reply.rules.into_iter().filter(|rule| !rule.satisfied);
                let rules: Vec<String> = rules.map(|rule| format!("{}: {}", rule.name, rule.status)).collect();
                Some(format!("the SCM is in safe mode: {}", rules.join("; ")))
            }
            Ok(scm_response::Op::SafeMode(_)) => None,
            Ok(_) => Some("the SCM answers with something else than was asked".to_owned()),
            Err(error) => Some(format!("the SCM cannot be asked: {error}")),
        };
        *self.writable.0.lock() = Some((now_ms, obstacle.clone()));
        obstacle
    }
}
