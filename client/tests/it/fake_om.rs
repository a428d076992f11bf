//! A key-space manager in memory: grants, epochs and one level of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ozone_common::env::Env;
use ozone_common::id::{BlockId, LOCAL_BITS};
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::{Block, BlockRange, LocatedBlock, NodeAddress, Token};
use ozone_proto::om::v1::{
    Empty, FailedWriteReply, Grant, KeyFound, KeyInfo, OmRequest, OmResponse, ReportFailedWrite, om_request,
    om_response,
};
use ozone_rpc::session::{CallHandler, IncomingCall};
use parking_lot::Mutex;
use prost::Message;

#[derive(Clone)]
struct Container {
    epoch: u32,
    members: Vec<NodeAddress>,
}

#[derive(Default)]
pub struct OmState {
    pub nodes: Vec<NodeAddress>,
    containers: BTreeMap<u64, Container>,
    next: u64,
    pub acquired: usize,
    pub excluded: Vec<Vec<Bytes>>,
    pub reports: Vec<ReportFailedWrite>,
    pub renewed: usize,
    pub released: Vec<u64>,
    pub lookups: usize,
    pub grant_life_ms: u64,
    /// Answers of AcquireGrant that fail first.
    pub refusals: Vec<ErrorCode>,
    /// The one key: generation, inline bytes or blocks.
    pub generation: u64,
    pub blocks: Vec<Block>,
    pub inline: Option<Bytes>,
    pub read_token_life_ms: u64,
}

pub struct FakeOm {
    pub state: Mutex<OmState>,
    pub env: Env,
}

impl FakeOm {
    pub fn new(nodes: Vec<NodeAddress>) -> Arc<Self> {
        let state = OmState {
            nodes,
            next: 1,
            grant_life_ms: 600_000,
            generation: 1,
            read_token_life_ms: 60_000,
            ..OmState::default()
        };
        Arc::new(Self { state: Mutex::new(state), env: Env::system() })
    }

    fn token(&self, life_ms: u64) -> Token {
        Token { expires_ms: self.env.clock.now_ms() + life_ms, ..Token::default() }
    }

    /// Datanodes of a block's container as recorded now.
    pub fn members(&self, block: u64) -> Vec<Bytes> {
        let state = self.state.lock();
        let container = &state.containers[&(block >> LOCAL_BITS)];
        container.members.iter().map(|member| member.datanode.clone()).collect()
    }

    pub fn epoch(&self, block: u64) -> u32 {
        self.state.lock().containers[&(block >> LOCAL_BITS)].epoch
    }

    pub fn found(&self) -> KeyFound {
        let state = self.state.lock();
        let length = state.inline.as_ref().map_or(state.blocks.iter().map(|b| b.length).sum(), |i| i.len() as u64);
        let info = KeyInfo { key: "k".into(), length, generation: state.generation, ..KeyInfo::default() };
        let mut offset = 0;
        let locate = |block: &Block| {
            let located = LocatedBlock {
                block: Some(*block),
                offset,
                replicas: state.containers[&(block.id >> LOCAL_BITS)].members.clone(),
                token: Some(self.token(state.read_token_life_ms)),
            };
            offset += block.length;
            located
        };
        KeyFound {
            info: Some(info),
            blocks: state.blocks.iter().map(locate).collect(),
            inline: state.inline.clone().unwrap_or_default(),
            is_inline: state.inline.is_some(),
        }
    }

    /// As the OM answers a look-up of a range: only the blocks that hold bytes of it.
    pub fn found_in(&self, offset: u64, length: u64) -> KeyFound {
        let mut found = self.found();
        let end = if length == 0 { u64::MAX } else { offset + length };
        found.blocks.retain(|at| at.offset < end && at.offset + at.block.as_ref().unwrap().length > offset);
        found
    }

    fn acquire(&self, request: &ozone_proto::om::v1::AcquireGrant) -> Result<om_response::Op, Error> {
        let mut state = self.state.lock();
        state.acquired += 1;
        state.excluded.push(request.exclude.clone());
        if let Some(code) = state.refusals.pop() {
            return Err(Error::new(code, "scripted"));
        }
        let copies = if request.replication == "RATIS/ONE" { 1 } else { 3 };
        let mut members = state.nodes.clone();
        members.retain(|node| !request.exclude.contains(&node.datanode));
        members.truncate(copies);
        let min = if copies == 1 { 1 } else { 2 };
        if members.len() < min {
            return Err(Error::new(ErrorCode::InsufficientDatanodes, "too few"));
        }
        let container = state.next;
        state.next += 1;
        state.containers.insert(container, Container { epoch: 1, members: members.clone() });
        let life = state.grant_life_ms;
        Ok(om_response::Op::Grant(Grant {
            id: container,
            ranges: vec![BlockRange {
                container,
                first_local: 1,
                count: request.blocks,
                epoch: 1,
                replicas: members,
                token: Some(self.token(life)),
            }],
            expires_ms: self.env.clock.now_ms() + life,
            max_block_length: request.max_block_length,
            min_replicas: min as u32,
        }))
    }

    fn report(&self, report: ReportFailedWrite) -> Result<om_response::Op, Error> {
        let mut state = self.state.lock();
        state.reports.push(report.clone());
        let container = state.containers.get_mut(&report.container).expect("a container that was granted");
        if report.epoch != container.epoch {
            return Err(Error::new(ErrorCode::StaleEpoch, "another epoch"));
        }
        container.epoch += 1;
        container.members.retain(|member| !report.failed.contains(&member.datanode));
        let (epoch, members) = (container.epoch, container.members.clone());
        Ok(om_response::Op::FailedWrite(FailedWriteReply { epoch, seal_token: Some(self.token(60_000)), members }))
    }

    fn serve(&self, op: om_request::Op) -> Result<om_response::Op, Error> {
        match op {
            om_request::Op::AcquireGrant(request) => self.acquire(&request),
            om_request::Op::RenewGrant(request) => {
                let mut state = self.state.lock();
                state.renewed += 1;
                let life = state.grant_life_ms;
                let container = &state.containers[&request.grant];
                Ok(om_response::Op::Grant(Grant {
                    id: request.grant,
                    ranges: vec![BlockRange {
                        container: request.grant,
                        first_local: 1,
                        count: 1000,
                        epoch: container.epoch,
                        replicas: container.members.clone(),
                        token: Some(self.token(life)),
                    }],
                    expires_ms: self.env.clock.now_ms() + life,
                    ..Grant::default()
                }))
            }
            om_request::Op::ReleaseGrant(request) => {
                self.state.lock().released.push(request.grant);
                Ok(om_response::Op::Empty(Empty {}))
            }
            om_request::Op::ReportFailedWrite(report) => self.report(report),
            om_request::Op::LookupKey(request) => {
                let generation = {
                    let mut state = self.state.lock();
                    state.lookups += 1;
                    state.generation
                };
                if request.generation != 0 && request.generation != generation {
                    return Err(Error::new(ErrorCode::KeyChanged, "written anew"));
                }
                Ok(om_response::Op::KeyFound(self.found_in(request.data_offset, request.data_length)))
            }
            other => Err(Error::new(ErrorCode::NotSupported, format!("{other:?}"))),
        }
    }
}

impl CallHandler for FakeOm {
    fn call(&self, call: IncomingCall) -> BoxFuture<'_, Result<Bytes, Error>> {
        let request = OmRequest::decode(call.request).expect("the client encodes");
        let outcome = self.serve(request.op.expect("the client names an operation"));
        Box::pin(async move { outcome.map(|op| OmResponse { op: Some(op) }.encode_to_vec().into()) })
    }
}

pub fn local(block: u64) -> u32 {
    BlockId::new(block).expect("a valid block id").local()
}
