//! `/metrics`, `/livez`, `/readyz` and `/metadata` over HTTP/1.1: one GET a connection, everything bounded.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// The request line with its headers.
const MAX_HEAD_BYTES: usize = 8 << 10;
/// For a whole request and its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_CONNECTIONS: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a daemon tells of itself beside its metrics; nothing here may block.
pub trait Status: Send + Sync + 'static {
    /// Why the process is not ready.
    fn readiness(&self) -> Result<(), String>;
    /// How far it has replayed the metadata log, with the digest of what that gave: equal on all nodes at
    /// one offset.
    fn metadata(&self) -> String;
}

/// Serves until `shutdown`.
pub async fn serve_http(
    listener: TcpListener,
    metrics: Metrics,
    status: impl Status,
    shutdown: CancellationToken,
) {
    let status = Arc::new(status);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accept = async {
            // Whoever finds all places taken waits in the listener's backlog; each is free within the time-out.
            let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = listener.accept().await?;
            Ok::<_, io::Error>((slot, stream))
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((slot, stream)) => {
                let (metrics, status) = (metrics.clone(), status.clone());
                connections.spawn(async move {
                    let _slot = slot;
                    match tokio::time::timeout(TIMEOUT, answer(stream, &metrics, &*status)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::debug!("a scrape failed: {error}"),
                        Err(_) => tracing::debug!("a scrape took too long"),
                    }
                });
            }
            Err(error) => {
                tracing::warn!("accepting a scrape failed: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, metrics: &Metrics, status: &impl Status) -> io::Result<()> {
    let Some(head) = read_head(&mut stream).await? else {
        return respond(&mut stream, &Response::plain("431 Request Header Fields Too Large", ""), true).await;
    };
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or_default(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || words.next().is_some() {
        return respond(&mut stream, &Response::plain("400 Bad Request", ""), true).await;
    }
    let with_body = match method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return respond(&mut stream, &Response::plain("405 Method Not Allowed", ""), true).await,
    };
    let path = target.split('?').next().unwrap_or_default();
    let response = match path {
        "/metrics" => Response {
            status: "200 OK",
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            body: metrics.encode(),
        },
        "/livez" => Response::plain("200 OK", "ok\n"),
        "/readyz" => match status.readiness() {
            Ok(()) => Response::plain("200 OK", "ok\n"),
            Err(reason) => Response::plain("503 Service Unavailable", format!("{reason}\n")),
        },
        "/metadata" => Response::plain("200 OK", status.metadata()),
        _ => Response::plain("404 Not Found", "/metrics, /livez, /readyz or /metadata\n"),
    };
    respond(&mut stream, &response, with_body).await
}

/// The head of a request; `None` where it is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::with_capacity(1 << 10);
    loop {
        let read = stream.take((MAX_HEAD_BYTES - head.len()) as u64).read_buf(&mut head).await?;
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if head.len() >= MAX_HEAD_BYTES {
            return Ok(None);
        }
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

struct Response {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    fn plain(status: &'static str, body: impl Into<String>) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }
}

async fn respond(stream: &mut TcpStream, response: &Response, with_body: bool) -> io::Result<()> {
    let Response { status, content_type, body } = response;
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if with_body {
        text.push_str(body);
    }
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Ready(Arc<AtomicBool>);

    impl Status for Ready {
        fn readiness(&self) -> Result<(), String> {
            if self.0.load(Ordering::SeqCst) { Ok(()) } else { Err("fenced".to_owned()) }
        }

        fn metadata(&self) -> String {
            "offset 7\n".to_owned()
        }
    }

    async fn start(ready: Arc<AtomicBool>) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let server = tokio::spawn(serve_http(listener, Metrics::new(), Ready(ready), shutdown.clone()));
        (address, shutdown, server)
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn paths_are_answered_and_nothing_else_is() {
        let ready = Arc::new(AtomicBool::new(false));
        let (address, shutdown, server) = start(ready.clone()).await;
        let get = async |path: &str| ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(get("/livez").await.starts_with("HTTP/1.1 200 OK\r\n"));
        let not_ready = get("/readyz").await;
        assert!(
            not_ready.starts_with("HTTP/1.1 503 ") && not_ready.ends_with("\r\n\r\nfenced\n"),
            "{not_ready}"
        );
        ready.store(true, Ordering::SeqCst);
        assert!(get("/readyz").await.starts_with("HTTP/1.1 200 "));
        let metrics = get("/metrics?x=y").await;
        assert!(metrics.contains("openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
        assert!(get("/metadata").await.ends_with("\r\n\r\noffset 7\n"));
        assert!(get("/etc/passwd").await.starts_with("HTTP/1.1 404 "));
        let head = ask(address, "HEAD /livez HTTP/1.1\r\n\r\n").await;
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET / a HTTP/1.1\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            let answer = ask(address, request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        }
        shutdown.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_head_without_end_is_refused() {
        let (address, _shutdown, _server) = start(Arc::new(AtomicBool::new(true))).await;
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_HEAD_BYTES));
        let answer = ask(address, long.get(..MAX_HEAD_BYTES).unwrap()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}
