//! Arbitrary bytes where frames and greetings are expected.

use std::task::{Context, Poll, Waker};

use ozone_common::env::Env;
use ozone_common::id::ClusterId;
use ozone_common::limits::{FRAME_HEADER_MAX, FRAME_PAYLOAD_MAX};
use ozone_common::peer::ClusterSecret;
use ozone_proto::datanode::v1::{Request, Response};
use ozone_proto::rpc::v1::Hello;
use prost::Message;

use crate::data::io::{Io, decode_hello};
use crate::frame::{Kind, PREFIX_LENGTH, repair};
use crate::session::hello::Doorkeeper;

/// The bytes of a connection; there is nobody to answer.
struct Input<'a>(&'a [u8]);

impl tokio::io::AsyncRead for Input<'_> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let count = self.0.len().min(buffer.remaining());
        let (now, later) = self.0.split_at(count);
        buffer.put_slice(now);
        self.0 = later;
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Input<'_> {
    fn poll_write(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Reads frames until the connection breaks; tells which kinds came and how it broke.
fn read(bytes: &[u8]) -> (Vec<u8>, String) {
    let mut io = Io::new(Input(bytes));
    let mut kinds = Vec::new();
    loop {
        match io.poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => unreachable!("the input never waits"),
            Poll::Ready(Err(error)) => return (kinds, error.to_string().chars().take(12).collect()),
            Poll::Ready(Ok(frame)) => {
                assert!(frame.header.len() <= FRAME_HEADER_MAX && frame.payload.len() <= FRAME_PAYLOAD_MAX);
                let decodes = match frame.kind {
                    Kind::Hello => decode_hello(&frame).is_ok(),
                    Kind::Request => Request::decode(frame.header).is_ok(),
                    Kind::Response => Response::decode(frame.header).is_ok(),
                };
                kinds.push(frame.kind as u8 * 2 + u8::from(decodes));
            }
        }
    }
}

#[test]
fn whatever_a_peer_sends_is_frames_or_ends_its_connection() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/frames");
    ozone_fuzz::fuzz(corpus, &[b"O3DF", &[0, 0, 0, 0]], |bytes| {
        // A checksum keeps nearly all mutations out: they are let in too.
        let mut repaired = bytes.to_vec();
        let mut at = 0;
        while let Some(length) = repair(&mut repaired[at..]) {
            at += length;
        }
        assert!(at <= repaired.len() && (at == 0 || at >= PREFIX_LENGTH));
        (read(bytes).1, read(&repaired))
    });
}

#[test]
fn a_greeting_that_is_not_whole_and_proven_is_refused() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/greeting");
    let secret = ClusterSecret::new(ClusterId::from_bytes([7; 16]), [1; 32]);
    let door = Doorkeeper::new("om.Sessions", secret, true);
    let now = Env::system().clock.now_ms();
    ozone_fuzz::fuzz(corpus, &[&[7; 16]], |bytes| {
        let hello = Hello::decode(bytes).ok()?;
        match door.check(&hello, true, now) {
            Ok(greeting) => {
                assert!(!greeting.proven, "nobody guesses a proof");
                Some(String::new())
            }
            Err(error) => Some(error.to_string().chars().take(16).collect()),
        }
    });
}
