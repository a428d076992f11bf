//! What a role tells over HTTP: `/metrics`, `/health/live`, `/health/ready`.
//!
//! Live means that the process answers at all. Ready means that it can serve: 200 with `ready`, or 503 with one reason a
//! line. The server takes few connections, reads no bodies and gives slow callers little time, so that whoever reaches
//! it cannot harm the role.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ozone_common::telemetry::render_metrics;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::listener;

// LIMIT: connections served at once, time for a request's head, time for a whole connection.
const CONNECTIONS_MAX: usize = 16;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// What keeps a role from serving; empty when it is ready. Called once a request; must not wait.
pub type Ready = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Serves on `listener` until `shutdown`; the task ends when the connections have.
///
/// Bind with [`crate::listener::bind`], which refuses addresses beyond loopback while security is off.
pub fn serve(listener: TcpListener, ready: Ready, shutdown: CancellationToken) -> JoinHandle<()> {
    ozone_common::telemetry::install_metrics();
    tokio::spawn(listener::accept(listener, CONNECTIONS_MAX, "status", shutdown.clone(), move |stream| {
        serve_connection(stream, ready.clone(), shutdown.clone())
    }))
}

async fn serve_connection(stream: TcpStream, ready: Ready, shutdown: CancellationToken) {
    let service = service_fn(move |request| {
        let response = answer(&request, &ready);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::time::timeout(CONNECTION_TIMEOUT, async {
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    });
    if let Ok(Err(error)) = ended.await {
        tracing::debug!(%error, "connection to the status server");
    }
}

fn answer(request: &Request<Incoming>, ready: &Ready) -> Response<Full<Bytes>> {
    let (status, text) = if !matches!(*request.method(), Method::GET | Method::HEAD) {
        (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned())
    } else {
        match request.uri().path() {
            "/metrics" => (StatusCode::OK, render_metrics()),
            "/health/live" => (StatusCode::OK, "live\n".to_owned()),
            "/health/ready" => match ready() {
                reasons if reasons.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
                reasons => (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n"),
            },
            _ => (StatusCode::NOT_FOUND, "there are /metrics, /health/live and /health/ready\n".to_owned()),
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let text_type = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text_type);
    response
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn tells_metrics_and_health_and_nothing_else() {
        let reasons = Arc::new(Mutex::new(vec!["safe mode: 1 of 3 datanodes".to_owned(), "no leader".to_owned()]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let told = reasons.clone();
        let server = serve(listener, Arc::new(move || told.lock().clone()), shutdown.clone());
        metrics::counter!("ozone_test_status_total").increment(1);

        let get = async |path: &str| {
            ask(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
        };
        let metrics = get("/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("ozone_test_status_total 1\n"), "{metrics}");
        assert!(metrics.contains("process_resident_memory_bytes "));
        assert!(get("/health/live").await.starts_with("HTTP/1.1 200"));
        let unready = get("/health/ready").await;
        assert!(unready.starts_with("HTTP/1.1 503"), "{unready}");
        assert!(unready.ends_with("safe mode: 1 of 3 datanodes\nno leader\n"), "{unready}");
        reasons.lock().clear();
        assert!(get("/health/ready").await.ends_with("ready\n"));
        assert!(get("/health").await.starts_with("HTTP/1.1 404"));
        assert!(
            ask(address, "POST /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 405")
        );
        assert!(ask(address, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));

        // A connection that idles does not keep the role from stopping.
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        idle.read_u8().await.unwrap();
        shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(5), server).await.expect("the server stops").unwrap();
    }
}
