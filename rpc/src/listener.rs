//! The one place where roles bind their ports and accept connections: which addresses are allowed, how many connections, and errors
//! a person can act on.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ozone_common::telemetry::RateLimit;
use ozone_common::{Error, ErrorCode};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::server::{Router, TcpIncoming};

/// Connections waiting to be accepted.
const BACKLOG: u32 = 1024;

/// Refuses addresses that others can reach while security is off.
///
/// # Errors
/// `PermissionDenied` with a line that says what to change.
pub fn check_bind(address: SocketAddr, security_enabled: bool) -> Result<(), Error> {
    if security_enabled || address.ip().is_loopback() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::PermissionDenied,
        format!(
            "will not listen on {address}: with security.enabled = false only loopback addresses (127.0.0.1, ::1) are \
             served; bind to one of them, or set security.enabled = true"
        ),
    ))
}

/// Listens on `address` (`host:port`; port 0 = any free one) after [`check_bind`].
///
/// # Errors
/// One line each: a name that does not resolve, an address that is not allowed, a port in use.
pub async fn bind(address: &str, security_enabled: bool) -> Result<TcpListener, Error> {
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(address)
        .await
        .map_err(|error| Error::invalid(format!("listen address `{address}` (host:port is needed): {error}")))?
        .collect();
    let Some(first) = resolved.first().copied() else {
        return Err(Error::invalid(format!("listen address `{address}` names no address")));
    };
    for address in &resolved {
        check_bind(*address, security_enabled)?;
    }
    listen(first).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "the port is in use; stop the process that holds it or choose another port (0 = any free one)"
                    .to_owned()
            }
            io::ErrorKind::PermissionDenied => format!("not permitted ({error}); ports below 1024 need privileges"),
            io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
            _ => error.to_string(),
        };
        Error::new(ErrorCode::Unavailable, format!("cannot listen on {first}: {why}"))
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of a former run in TIME_WAIT must not keep a restarted role from its port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The address a listener got.
///
/// # Errors
/// `Internal` where the system does not say.
pub fn local_address(listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|error| Error::internal(format!("address of a listening socket: {error}")))
}

/// Gives each connection to `serve`, in a task of its own, until `shutdown`; then stops listening and waits for those that are there.
/// At most `connections_max` are served at a time: further ones wait in the listener's backlog. `name` is for logs.
pub async fn accept<F>(
    listener: TcpListener,
    connections_max: usize,
    name: &'static str,
    shutdown: CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(connections_max));
    let warnings = RateLimit::every_ms(10_000);
    loop {
        let place = tokio::select! {
            () = shutdown.cancelled() => break,
            place = places.clone().acquire_owned() => place.expect("nobody closes this semaphore"),
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if let Some(held_back) = warnings.pass() {
                        tracing::warn!(%error, held_back, server = name, "cannot accept a connection");
                    }
                    // Out of descriptors, most likely: the next accept would fail at once too.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let served = serve(stream);
        connections.spawn(async move {
            served.await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Serves gRPC on `listener` until `shutdown`, then until the calls in progress have ended.
///
/// Sessions end by their own copy of the token (`session::SessionConfig::shutdown`); other streaming services must watch
/// `shutdown` too, or this waits for their clients.
///
/// # Errors
/// `Internal` where the server fails as a whole.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) -> Result<(), Error> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    router
        .serve_with_incoming_shutdown(incoming, shutdown.cancelled_owned())
        .await
        .map_err(|error| Error::internal(format!("gRPC server: {}", crate::channel::innermost(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_without_security() {
        for (address, secure, allowed) in [
            ("127.0.0.1:1", false, true),
            ("[::1]:1", false, true),
            ("0.0.0.0:1", false, false),
            ("192.168.0.1:1", false, false),
            ("[::]:1", false, false),
            ("0.0.0.0:1", true, true),
        ] {
            assert_eq!(check_bind(address.parse().unwrap(), secure).is_ok(), allowed, "{address} {secure}");
        }
        let error = check_bind("0.0.0.0:9862".parse().unwrap(), false).unwrap_err();
        assert!(error.message.contains("0.0.0.0:9862") && error.message.contains("security.enabled"));
    }

    #[tokio::test]
    async fn a_port_in_use_is_told_in_one_line() {
        let listener = bind("127.0.0.1:0", false).await.unwrap();
        let address = local_address(&listener).unwrap();
        let error = bind(&address.to_string(), false).await.unwrap_err();
        assert!(error.message.contains(&format!("{address}: the port is in use")), "{error}");
        assert!(!error.message.contains('\n'));
        assert!(bind("nonsense", false).await.unwrap_err().message.contains("host:port"));
    }
}
