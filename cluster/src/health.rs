//! How a role feels: its `/health/ready`, asked over HTTP.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// LIMIT: time for one question, bytes of an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_MAX: u64 = 64 << 10;

/// What a role answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// It serves.
    Ready,
    /// It answers, and says what keeps it from serving.
    Waiting(Vec<String>),
    /// It does not answer, and why.
    Silent(String),
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Waiting(reasons) => write!(f, "not ready: {}", reasons.join("; ")),
            Self::Silent(why) => write!(f, "does not answer: {why}"),
        }
    }
}

/// Asks the role whose status server is at `address` (`host:port`).
pub async fn ask(address: &str) -> Health {
    match timeout(ASK_TIMEOUT, get(address, "/health/ready")).await {
        Ok(Ok((200, _))) => Health::Ready,
        Ok(Ok((503, text))) => Health::Waiting(text.lines().map(str::to_owned).collect()),
        Ok(Ok((status, _))) => Health::Silent(format!("status {status}")),
        Ok(Err(error)) => Health::Silent(error.to_string()),
        Err(_) => Health::Silent(format!("no answer within {} s", ASK_TIMEOUT.as_secs())),
    }
}

async fn get(address: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer).await?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "not an HTTP answer");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).ok_or_else(malformed)?;
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn answers_are_told_apart() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\nready\n", Health::Ready),
            ("HTTP/1.1 503 X\r\n\r\none\ntwo\n", Health::Waiting(vec!["one".into(), "two".into()])),
            ("HTTP/1.1 404 X\r\n\r\n", Health::Silent("status 404".into())),
            ("SSH-2.0\r\n", Health::Silent("not an HTTP answer".into())),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 512];
                let n = stream.read(&mut request).await.unwrap();
                assert!(request[..n].starts_with(b"GET /health/ready HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
            assert_eq!(ask(&address).await, expected);
            server.await.unwrap();
            assert!(matches!(ask(&address).await, Health::Silent(_)));
        }
    }
}
