//! Connections to the quorum listener that tell when they end: a broker that was killed has lost its
//! connections long before its session lapses.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use crate::control::heartbeat::ConnectionId;
use crate::quorum::QuorumController;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// After a failed accept: with no descriptor left the next one fails at once, too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Peers send HTTP/2's preface with the first packet. Whoever has not sent it by then is none, and keeps no
/// descriptor; from the preface on HTTP/2's own pings tell who is gone.
const PREFACE_DEADLINE: Duration = Duration::from_secs(10);
const PREFACE_BYTES: usize = 24;

/// In the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(pub ConnectionId);

/// A TCP stream that reports its end.
pub struct TrackedStream {
    stream: TcpStream,
    id: ConnectionId,
    controller: QuorumController,
    preface: Preface,
}

/// What is still missing of it, and how long it is waited for. `None`: it is here.
struct Preface(Option<(usize, Pin<Box<Sleep>>)>);

impl Preface {
    fn awaited(deadline: Duration) -> Preface {
        Preface(Some((PREFACE_BYTES, Box::pin(sleep(deadline)))))
    }

    fn arrived(&mut self, bytes: usize) {
        self.0 = self.0.take().and_then(|(missing, deadline)| {
            missing.checked_sub(bytes).filter(|missing| *missing > 0).map(|missing| (missing, deadline))
        });
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some((_, deadline)) => deadline.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        self.controller.connection_closed(self.id);
    }
}

/// The connections of a listener, without Nagle's delay: each commit would wait for it. Never an error: the
/// server would try again at once.
pub fn incoming(
    listener: TcpListener,
    controller: QuorumController,
) -> impl Stream<Item = io::Result<TrackedStream>> {
    stream::unfold((listener, controller), |(listener, controller)| async move {
        let stream = accept(&listener).await;
        // Without it the connection works all the same.
        let _ = stream.set_nodelay(true);
        let tracked = TrackedStream {
            stream,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            controller: controller.clone(),
            preface: Preface::awaited(PREFACE_DEADLINE),
        };
        Some((Ok(tracked), (listener, controller)))
    })
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(listener = "quorum", "accepting a connection failed: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Connected for TrackedStream {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        Connection(self.id)
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => self.preface.poll_overdue(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            read => {
                self.preface.arrived(buf.filled().len() - before);
                read
            }
        }
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn who_sends_no_preface_is_not_waited_for_for_ever() {
        let deadline = Duration::from_millis(20);
        for (sent, is_overdue) in
            [(0, true), (PREFACE_BYTES - 1, true), (PREFACE_BYTES, false), (9_000, false)]
        {
            let mut preface = Preface::awaited(deadline);
            preface.arrived(sent / 2);
            preface.arrived(sent - sent / 2);
            let patience = if is_overdue { Duration::from_secs(60) } else { 2 * deadline };
            let overdue = tokio::time::timeout(patience, poll_fn(|cx| preface.poll_overdue(cx))).await;
            assert_eq!(overdue.is_ok(), is_overdue, "{sent} bytes");
        }
    }
}
