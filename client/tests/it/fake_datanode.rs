//! A datanode in memory, on a runtime of its own so that it can be killed; what it does wrong is scripted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ozone_common::checksum::{first_mismatch, windows};
use ozone_common::id::{ClusterId, DatanodeId};
use ozone_common::{Error, ErrorCode};
use ozone_proto::common::v1::NodeAddress;
use ozone_proto::datanode::v1::{
    BlockOpened, BlockSealed, Done, ReadBlock, ReadData, Request, Response, request, response,
};
use ozone_rpc::data::{DataHandler, DataServerConfig, PeerInfo, Responder, serve};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub const WINDOW: usize = 16 << 10;
const PIECE: usize = 4 * WINDOW;

/// What goes wrong, for requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Refuse(ErrorCode),
    Hang,
    /// Answers after so many milliseconds.
    Slow(u64),
    /// Reads: ends after the first piece as if that were all.
    Short,
    /// Reads: flips a bit of the payload.
    FlipBit,
    /// Reads: other bytes under checksums that fit them.
    OtherBytes,
    /// Reads: the process dies after the first piece.
    DieMidway,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum On {
    PutSmall,
    Open,
    Chunk,
    Finish,
    Seal,
    Read,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub bytes: Vec<u8>,
    pub epoch: u32,
    pub sealed: bool,
}

#[derive(Default)]
pub struct State {
    pub blocks: BTreeMap<u64, Held>,
    /// A fault, and how many requests of the kind pass before it shows.
    pub faults: BTreeMap<On, (usize, Fault)>,
    pub abandoned: Vec<u64>,
    pub corrupt_reports: Vec<(u64, u64)>,
    pub requests: usize,
    /// Tokens that expire earlier than this are refused by reads.
    pub tokens_from_ms: u64,
    hung: Vec<Responder>,
}

impl State {
    fn fault(&mut self, on: On) -> Option<Fault> {
        let (pass, fault) = self.faults.get_mut(&on)?;
        if *pass > 0 {
            *pass -= 1;
            return None;
        }
        Some(*fault)
    }
}

pub struct Handler {
    state: Arc<Mutex<State>>,
    die: CancellationToken,
}

fn respond(op: response::Op) -> Response {
    Response { error: None, op: Some(op) }
}

impl Handler {
    fn answer(&self, reply: Responder, fault: Option<Fault>, outcome: Result<Response, Error>) {
        match fault {
            None => reply.answer(outcome),
            Some(Fault::Refuse(code)) => reply.fail(Error::new(code, "scripted")),
            Some(Fault::Slow(ms)) => drop(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                reply.answer(outcome);
            })),
            Some(_) => self.state.lock().hung.push(reply),
        }
    }

    fn put(&self, block: u64, epoch: u32, crcs: &[u32], payload: &Bytes) -> Result<Response, Error> {
        if first_mismatch(payload, crcs).is_some() {
            return Err(Error::new(ErrorCode::Corrupt, "damaged on the way"));
        }
        let held = Held { bytes: payload.to_vec(), epoch, sealed: true };
        match self.state.lock().blocks.insert(block, held) {
            None => Ok(respond(response::Op::Done(Done {}))),
            Some(_) => Err(Error::new(ErrorCode::InvalidBlock, "a block id was used twice")),
        }
    }

    fn read(&self, read: &ReadBlock, mut reply: Responder) {
        let (held, fault) = {
            let mut state = self.state.lock();
            let fault = state.fault(On::Read);
            let expires = read.token.as_ref().map_or(0, |token| token.expires_ms);
            if expires < state.tokens_from_ms {
                return reply.fail(Error::new(ErrorCode::InvalidToken, "expired"));
            }
            match fault {
                Some(Fault::Refuse(code)) => return reply.fail(Error::new(code, "scripted")),
                Some(Fault::Hang) => return state.hung.push(reply),
                _ => {}
            }
            (state.blocks.get(&read.block).cloned(), fault)
        };
        let good =
            held.filter(|held| held.sealed && held.epoch >= read.epoch && held.bytes.len() as u64 >= read.block_length);
        let Some(mut held) = good else {
            return reply.fail(Error::new(ErrorCode::BlockNotFound, "not here"));
        };
        let end = ((read.offset + read.length) as usize).next_multiple_of(WINDOW).min(held.bytes.len());
        let mut at = read.offset as usize / WINDOW * WINDOW;
        if fault == Some(Fault::OtherBytes) {
            held.bytes[at] ^= 1;
        }
        let die = self.die.clone();
        tokio::spawn(async move {
            if let Some(Fault::Slow(ms)) = fault {
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            while at < end {
                let to = (at + PIECE).min(end);
                let mut payload = held.bytes[at..to].to_vec();
                let crcs = windows(&payload);
                if fault == Some(Fault::FlipBit) && at > 0 {
                    payload[to - at - 1] ^= 0x40;
                }
                let last = to == end || fault == Some(Fault::Short);
                let response = respond(response::Op::ReadData(ReadData { offset: at as u64, crcs, last }));
                if last {
                    return reply.finish(&response, payload.into());
                }
                reply.room().await;
                reply.send(&response, payload.into());
                if fault == Some(Fault::DieMidway) {
                    die.cancel();
                    return;
                }
                at = to;
            }
        });
    }
}

impl DataHandler for Handler {
    type Connection = ();

    fn open(&self, _peer: PeerInfo) {}

    fn handle(&self, _connection: &mut (), request: Request, payload: Bytes, reply: Responder) {
        self.state.lock().requests += 1;
        let op = request.op.expect("the client names an operation");
        match op {
            request::Op::PutSmall(put) => {
                let fault = self.state.lock().fault(On::PutSmall);
                let outcome = match fault {
                    None | Some(Fault::Slow(_)) => self.put(put.block, put.epoch, &put.crcs, &payload),
                    Some(_) => Err(Error::internal("not reached")),
                };
                self.answer(reply, fault, outcome);
            }
            request::Op::OpenBlock(open) => {
                let fault = self.state.lock().fault(On::Open);
                let held = Held { bytes: Vec::new(), epoch: open.epoch, sealed: false };
                self.state.lock().blocks.insert(open.block, held);
                let opened = BlockOpened { window_bytes: 1 << 20 };
                self.answer(reply, fault, Ok(respond(response::Op::BlockOpened(opened))));
            }
            request::Op::WriteChunk(chunk) => {
                let fault = self.state.lock().fault(On::Chunk);
                let outcome = if matches!(fault, None | Some(Fault::Slow(_))) {
                    let mut state = self.state.lock();
                    match state.blocks.get_mut(&chunk.block) {
                        Some(held) if held.sealed => Err(Error::new(ErrorCode::StaleEpoch, "sealed")),
                        Some(held) if held.bytes.len() as u64 != chunk.offset => {
                            Err(Error::new(ErrorCode::OutOfOrder, "not where it ends"))
                        }
                        Some(_) if first_mismatch(&payload, &chunk.crcs).is_some() => {
                            Err(Error::new(ErrorCode::Corrupt, "damaged on the way"))
                        }
                        Some(held) => {
                            held.bytes.extend_from_slice(&payload);
                            Ok(respond(response::Op::Done(Done {})))
                        }
                        None => Err(Error::new(ErrorCode::BlockNotFound, "not open")),
                    }
                } else {
                    Err(Error::internal("not reached"))
                };
                self.answer(reply, fault, outcome);
            }
            request::Op::FinishBlock(finish) => {
                let fault = self.state.lock().fault(On::Finish);
                let outcome = match self.state.lock().blocks.get_mut(&finish.block) {
                    Some(held) if held.bytes.len() as u64 == finish.length => {
                        held.sealed = true;
                        Ok(respond(response::Op::Done(Done {})))
                    }
                    _ => Err(Error::new(ErrorCode::BlockNotFound, "another length")),
                };
                self.answer(reply, fault, outcome);
            }
            request::Op::SealBlock(seal) => {
                let fault = self.state.lock().fault(On::Seal);
                let outcome = match self.state.lock().blocks.get_mut(&seal.block) {
                    Some(held) if held.epoch < seal.epoch => {
                        held.epoch = seal.epoch;
                        held.sealed = true;
                        if let Some(length) = seal.length {
                            held.bytes.truncate(length as usize);
                        }
                        let sealed = BlockSealed { length: held.bytes.len() as u64 };
                        Ok(respond(response::Op::BlockSealed(sealed)))
                    }
                    _ => Err(Error::new(ErrorCode::StaleEpoch, "not above")),
                };
                self.answer(reply, fault, outcome);
            }
            request::Op::ReadBlock(read) => self.read(&read, reply),
            request::Op::ReportCorrupt(report) => {
                self.state.lock().corrupt_reports.push((report.block, report.offset));
                reply.answer(Ok(respond(response::Op::Done(Done {}))));
            }
            request::Op::AbandonBlock(abandon) => {
                let mut state = self.state.lock();
                state.abandoned.push(abandon.block);
                drop(state);
                reply.answer(Ok(respond(response::Op::Done(Done {}))));
            }
        }
    }

    fn close(&self, (): ()) {}
}

pub struct FakeDatanode {
    pub id: DatanodeId,
    pub address: NodeAddress,
    pub state: Arc<Mutex<State>>,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    cluster: ClusterId,
}

impl FakeDatanode {
    pub fn start(number: u8, cluster: ClusterId) -> Arc<Self> {
        let id = DatanodeId::from_bytes([number; 16]);
        let node = Arc::new(Self {
            id,
            address: NodeAddress {
                datanode: Bytes::copy_from_slice(id.as_bytes()),
                host: "127.0.0.1".to_owned(),
                data_port: 0,
            },
            state: Arc::default(),
            runtime: Mutex::new(None),
            cluster,
        });
        let mut node = Arc::into_inner(node).expect("nobody else has it yet");
        node.address.data_port = u32::from(node.serve(0));
        Arc::new(node)
    }

    /// Starts again after [`FakeDatanode::kill`], with what it held.
    pub fn restart(&self) {
        self.serve(self.address.data_port as u16);
    }

    fn serve(&self, port: u16) -> u16 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", port))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let die = CancellationToken::new();
        let handler = Arc::new(Handler { state: self.state.clone(), die: die.clone() });
        let config = DataServerConfig::new(self.cluster, self.id);
        let serving = serve(listener, config, handler, CancellationToken::new());
        runtime.spawn(die.clone().run_until_cancelled_owned(serving));
        let state = self.state.clone();
        // Scripted death: drops every connection at once.
        let handle = runtime.handle().clone();
        std::thread::spawn(move || {
            handle.block_on(die.cancelled());
            state.lock().faults.insert(On::Read, (0, Fault::Hang));
        });
        *self.runtime.lock() = Some(runtime);
        port
    }

    /// Ends every connection without a farewell.
    pub fn kill(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }

    pub fn fault(&self, on: On, after: usize, fault: Fault) {
        self.state.lock().faults.insert(on, (after, fault));
    }

    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    pub fn held(&self, block: u64) -> Option<Held> {
        self.state.lock().blocks.get(&block).cloned()
    }
}

impl Drop for FakeDatanode {
    fn drop(&mut self) {
        self.kill();
    }
}
