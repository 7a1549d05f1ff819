//! Accepts connections within the limits, and ends them at shutdown.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::connection::Connection;
use super::limits::{ConnectionCounts, ConnectionSlot, Limits};
use super::{ConnectionInfo, Handler};

/// Answers that are pending at shutdown have this long to go out.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Out of descriptors or memory: accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

static NEXT_CONNECTION_ID: AtomicU64 = AtomicU64::new(1);

/// Binds a listener; an empty host means every address, IPv4 and IPv6.
pub async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    if !host.is_empty() {
        return TcpListener::bind((host, port)).await;
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        // A machine without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        Err(error) => Err(error),
    }
}

/// Serves a listener until `shutdown`: then no request is read any more, pending answers go out, and
/// all connections end.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    name: impl Into<Arc<str>>,
    handler: Arc<H>,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let name = name.into();
    let limits = Arc::new(limits);
    let counts = Arc::new(ConnectionCounts::default());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                report(ended);
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let Some(slot) = counts.admit(peer.ip(), &limits) else {
                        limits.metrics.connections_refused.inc();
                        tracing::debug!(listener = %name, %peer, "connection refused: too many");
                        continue;
                    };
                    limits.metrics.connections_accepted.inc();
                    let accepted = Accepted { stream, peer, name: name.clone(), slot };
                    connections.spawn(connection(accepted, handler.clone(), limits.clone(), shutdown.clone()));
                }
                Err(error) => {
                    tracing::warn!(listener = %name, "accepting a connection failed: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    };
    if tokio::time::timeout(SHUTDOWN_GRACE, drained).await.is_err() {
        tracing::debug!(listener = %name, "{} connections cut at shutdown", connections.len());
        connections.shutdown().await;
    }
}

struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    name: Arc<str>,
    slot: ConnectionSlot,
}

async fn connection<H: Handler>(
    accepted: Accepted,
    handler: Arc<H>,
    limits: Arc<Limits>,
    shutdown: CancellationToken,
) {
    let Accepted { stream, peer, name, slot: _slot } = accepted;
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(&stream).set_keepalive(true))
        .and_then(|()| stream.local_addr());
    let local = match prepared {
        Ok(local) => local,
        // The client has gone already.
        Err(error) => {
            tracing::debug!(%peer, "connection lost: {error}");
            return;
        }
    };
    let id = NEXT_CONNECTION_ID.fetch_add(1, Ordering::Relaxed);
    let span = tracing::debug_span!("connection", listener = %name, id, %peer);
    let context = Arc::new(handler.connected(ConnectionInfo { id, peer, local, listener_name: name }));
    let _open = Open::new(&*handler, &context, &limits);
    Connection::new(stream, handler.clone(), context.clone(), limits.clone(), shutdown)
        .run()
        .instrument(span)
        .await;
}

/// However the connection ends, also by a panic or by being aborted, the handler hears of it.
struct Open<'a, H: Handler> {
    handler: &'a H,
    context: &'a Arc<H::Connection>,
    limits: &'a Limits,
}

impl<'a, H: Handler> Open<'a, H> {
    fn new(handler: &'a H, context: &'a Arc<H::Connection>, limits: &'a Limits) -> Open<'a, H> {
        limits.metrics.connections.inc();
        Open { handler, context, limits }
    }
}

impl<H: Handler> Drop for Open<'_, H> {
    fn drop(&mut self) {
        self.limits.metrics.connections.dec();
        self.handler.disconnected(self.context);
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    match ended {
        Err(error) if error.is_panic() => tracing::error!("a connection's task panicked: {error}"),
        _ => {}
    }
}
