//! Frames from the socket. The length is checked before the body gets any memory, and the budget is
//! charged as the bytes arrive; the body is read straight into a buffer of its own.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::limits::{Limits, Share};

/// The smallest request header: API key, version, correlation id.
const MIN_FRAME_BYTES: usize = 8;
/// Read ahead of a frame's length, so that small requests come many at a time.
const HEAD_BYTES: usize = 8 << 10;
/// A connection that has sent a request of some length gets so much, up to this, at once for the next: growing
/// costs a copy.
const PROVEN_BODY_BYTES: usize = 2 << 20;
/// A body that may go beyond the budget grows by this at least.
const MIN_GROWTH_BYTES: usize = 1 << 20;
/// The slowest sender that is waited for beyond `frame_timeout`.
const MIN_BYTES_PER_SECOND: usize = 8 << 10;

/// One request and its share of the budget.
#[derive(Debug)]
pub(super) struct Frame {
    pub body: BytesMut,
    pub share: Share,
}

#[derive(Debug, Error)]
pub(super) enum ReadError {
    #[error("closed by the client")]
    Closed,
    #[error("closed by the client in the middle of a request")]
    Truncated,
    #[error("a request's length is {length}, allowed is {MIN_FRAME_BYTES} to {max}")]
    Length { length: i32, max: usize },
    #[error("the process is out of service")]
    BudgetClosed,
    #[error(transparent)]
    Io(#[from] io::Error),
}

type ShareFuture = Pin<Box<dyn Future<Output = Option<Share>> + Send>>;

enum State {
    Length,
    /// The budget is used up: nothing is read meanwhile.
    Budget {
        length: usize,
        /// What has arrived.
        body: BytesMut,
        share: ShareFuture,
    },
    Body {
        length: usize,
        body: BytesMut,
        share: Share,
    },
}

pub(super) struct FrameReader {
    head: BytesMut,
    state: State,
    /// The longest request that came whole, up to `PROVEN_BODY_BYTES`.
    proven: usize,
    /// When the present frame was first waited for.
    waiting_since: Option<Instant>,
}

impl FrameReader {
    pub(super) fn new() -> FrameReader {
        FrameReader { head: BytesMut::new(), state: State::Length, proven: 0, waiting_since: None }
    }

    /// Whether the next frame is here already, so that handling it needs no wait.
    pub(super) fn has_frame(&self) -> bool {
        let Some(length) = self.head.first_chunk().map(|length| i32::from_be_bytes(*length)) else {
            return false;
        };
        matches!(self.state, State::Length)
            && usize::try_from(length).is_ok_and(|length| self.head.len() - 4 >= length)
    }

    /// When the frame that is being received has to be here.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let length = match &self.state {
            State::Body { length, .. } => *length,
            State::Length => MIN_FRAME_BYTES,
            // The client waits for us here.
            State::Budget { .. } => return None,
        };
        let size_time = Duration::from_secs((length / MIN_BYTES_PER_SECOND) as u64);
        self.waiting_since.map(|since| since + limits.frame_timeout + size_time)
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
        limits: &Limits,
    ) -> Poll<Result<Frame, ReadError>> {
        loop {
            match &mut self.state {
                State::Length => {
                    let Some(length) = self.head.first_chunk().map(|length| i32::from_be_bytes(*length))
                    else {
                        ready!(self.poll_head(context, stream))?;
                        continue;
                    };
                    let max = limits.max_frame_bytes;
                    let length = match usize::try_from(length) {
                        Ok(bytes) if (MIN_FRAME_BYTES..=max).contains(&bytes) => bytes,
                        _ => return Poll::Ready(Err(ReadError::Length { length, max })),
                    };
                    self.head.advance(4);
                    self.state = match limits.in_flight_bytes.try_begin(length) {
                        Some(share) => State::body(length, share, self.proven),
                        None => State::Budget {
                            length,
                            body: BytesMut::new(),
                            share: Box::pin(limits.in_flight_bytes.clone().begin(length)),
                        },
                    };
                }
                State::Budget { length, body, share } => {
                    let length = *length;
                    let share = ready!(share.as_mut().poll(context)).ok_or(ReadError::BudgetClosed)?;
                    self.waiting_since = None;
                    let body = std::mem::take(body);
                    self.state = if body.is_empty() {
                        State::body(length, share, self.proven)
                    } else {
                        State::Body { length, body, share }
                    };
                }
                State::Body { length, body, share } => {
                    let paid = share.bytes.min(*length);
                    let here = self.head.len().min(paid - body.len());
                    if here > 0 {
                        body.put_slice(self.head.get(..here).unwrap_or_default());
                        self.head.advance(here);
                    }
                    if body.len() < paid {
                        match poll_body(context, stream, body, paid) {
                            Poll::Ready(Ok(())) => continue,
                            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                            Poll::Pending => {
                                self.waiting_since.get_or_insert_with(Instant::now);
                                return Poll::Pending;
                            }
                        }
                    }
                    if paid < *length {
                        if !limits.in_flight_bytes.try_extend(share, *length) {
                            self.wait_for_budget(limits);
                        }
                        continue;
                    }
                    self.waiting_since = None;
                    self.proven = self.proven.max(paid.min(PROVEN_BODY_BYTES));
                    if let State::Body { body, share, .. } = std::mem::replace(&mut self.state, State::Length)
                    {
                        return Poll::Ready(Ok(Frame { body, share }));
                    }
                }
            }
        }
    }

    /// A body of which all that was paid for has arrived waits for more of the budget.
    fn wait_for_budget(&mut self, limits: &Limits) {
        self.state = match std::mem::replace(&mut self.state, State::Length) {
            State::Body { length, body, share } => {
                let share = Box::pin(limits.in_flight_bytes.clone().extend(share, length));
                State::Budget { length, body, share }
            }
            other => other,
        };
    }

    /// Reads at least one more byte into the head.
    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut TcpStream,
    ) -> Poll<Result<(), ReadError>> {
        self.head.reserve(HEAD_BYTES - self.head.len());
        let mut free = (&mut self.head).limit(HEAD_BYTES);
        let read = pin!(stream.read_buf(&mut free)).poll(context);
        match read {
            Poll::Ready(Ok(0)) if self.head.is_empty() => Poll::Ready(Err(ReadError::Closed)),
            Poll::Ready(Ok(0)) => Poll::Ready(Err(ReadError::Truncated)),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => {
                if self.head.is_empty() {
                    // Idle connections keep no buffer.
                    self.head = BytesMut::new();
                } else {
                    self.waiting_since.get_or_insert_with(Instant::now);
                }
                Poll::Pending
            }
        }
    }
}

impl State {
    /// The buffer is as large as what is paid for, or as what the connection has sent before: an announced length
    /// alone costs no memory.
    fn body(length: usize, share: Share, proven: usize) -> State {
        let capacity = length.min(share.bytes.max(proven));
        State::Body { length, body: BytesMut::with_capacity(capacity), share }
    }
}

/// Reads at least one more byte of the body, and never one past `paid`.
fn poll_body(
    context: &mut Context<'_>,
    stream: &mut TcpStream,
    body: &mut BytesMut,
    paid: usize,
) -> Poll<Result<(), ReadError>> {
    if body.len() == body.capacity() {
        let more = (paid - body.len()).min(body.len().saturating_mul(3).max(MIN_GROWTH_BYTES));
        // Not `reserve`, which may take twice of what was paid for.
        let mut larger = BytesMut::with_capacity(body.len() + more);
        larger.extend_from_slice(body);
        *body = larger;
    }
    let free = paid - body.len();
    let mut rest = body.limit(free);
    match ready!(pin!(stream.read_buf(&mut rest)).poll(context)) {
        Ok(0) => Poll::Ready(Err(ReadError::Truncated)),
        Ok(_) => Poll::Ready(Ok(())),
        Err(error) => Poll::Ready(Err(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn who_has_sent_a_large_request_has_room_for_the_next_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let limits = Limits::default();
        let mut reader = FrameReader::new();
        for (length, capacity) in
            [(1_usize << 20, 64 << 10), (1 << 20, 1 << 20), (3 << 20, 1 << 20), (3 << 20, 2 << 20)]
        {
            let mut request = i32::try_from(length).unwrap().to_be_bytes().to_vec();
            client.write_all(&request).await.unwrap();
            let begun = std::future::poll_fn(|context| {
                assert!(reader.poll_frame(context, &mut stream, &limits).is_pending());
                match &reader.state {
                    State::Body { body, .. } => Poll::Ready(body.capacity()),
                    _ => Poll::Pending,
                }
            });
            assert_eq!(
                tokio::time::timeout(Duration::from_secs(10), begun).await.unwrap(),
                capacity,
                "{length}"
            );
            request = vec![7; length];
            let read = std::future::poll_fn(|context| reader.poll_frame(context, &mut stream, &limits));
            let (sent, frame) = tokio::join!(client.write_all(&request), read);
            sent.unwrap();
            assert_eq!(frame.unwrap().body.len(), length);
        }
    }

    /// Thousands of clients that announce large requests and send a few bytes are cheap to be, and must be
    /// cheap to have.
    #[tokio::test]
    async fn memory_grows_with_what_has_arrived_and_never_beyond_what_is_paid_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let (limits, length) = (Limits::default(), 90_usize << 20);
        let mut reader = FrameReader::new();
        client.write_all(&i32::try_from(length).unwrap().to_be_bytes()).await.unwrap();
        let mut sent = 0;
        for size in [4, 64 << 10, 300 << 10, 2 << 20] {
            client.write_all(&vec![7; size]).await.unwrap();
            sent += size;
            let arrived = std::future::poll_fn(|context| {
                let frame = reader.poll_frame(context, &mut stream, &limits);
                assert!(frame.is_pending(), "{frame:?}");
                let State::Body { body, share, .. } = &reader.state else { panic!("no body is read") };
                assert!(body.capacity() <= share.bytes, "{} of {}", body.capacity(), share.bytes);
                assert!(share.bytes <= (8 * body.len()).max(64 << 10), "{} for {sent}", share.bytes);
                if body.len() == sent { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::time::timeout(Duration::from_secs(10), arrived).await.unwrap();
        }
    }
}
