//! Connections to the quorum listener that tell when they end: a broker that was killed has lost its
//! connections long before its session lapses.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::server::Connected;

use crate::control::heartbeat::ConnectionId;
use crate::quorum::QuorumController;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// In the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(pub ConnectionId);

/// A TCP stream that reports its end.
pub struct TrackedStream {
    stream: TcpStream,
    id: ConnectionId,
    controller: QuorumController,
}

impl Drop for TrackedStream {
    fn drop(&mut self) {
        self.controller.connection_closed(self.id);
    }
}

/// The connections of a listener, without Nagle's delay: each commit would wait for it.
pub fn incoming(
    listener: TcpListener,
    controller: QuorumController,
) -> impl Stream<Item = io::Result<TrackedStream>> {
    TcpListenerStream::new(listener).map(move |stream| {
        let stream = stream?;
        // Without it the connection works all the same.
        let _ = stream.set_nodelay(true);
        Ok(TrackedStream { stream, id: NEXT.fetch_add(1, Ordering::Relaxed), controller: controller.clone() })
    })
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
