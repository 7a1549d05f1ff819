//! One connection, one task: see the module's head.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::limits::{Limits, Share};
use super::read::{Frame, FrameReader, ReadError};
use super::write::{Chunk, write_chunks};
use super::{Handler, Reply};

/// Answers gathered before they are written, where more requests are here already.
const MAX_GATHERED_REPLIES: usize = 64;
const MAX_GATHERED_BYTES: usize = 256 << 10;
/// A connection alone may use this part of the shared budget beyond its first request.
const SHARE_OF_BUDGET: usize = 4;
/// Length prefixes are cut from a buffer of this size.
const PREFIX_BYTES: usize = 1 << 10;

type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

pub(super) struct Connection<H: Handler> {
    stream: TcpStream,
    handler: Arc<H>,
    context: Arc<H::Connection>,
    limits: Arc<Limits>,
    reader: FrameReader,
    /// Requests that are not answered yet, in their order.
    pending: FuturesOrdered<Slot>,
    pending_bytes: usize,
    /// Answers to be written next.
    out: Vec<Chunk>,
    out_bytes: usize,
    out_replies: usize,
    prefixes: BytesMut,
    /// `false` once the client has closed its side, sent nonsense, or the process shuts down.
    reading: bool,
    /// `false` once a write failed. What was begun is still brought to its end.
    writing: bool,
    last_active: Instant,
    timer: Pin<Box<Sleep>>,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum Event {
    Frame(Frame),
    Reply(Answered),
    Flush,
    ReadFailed(ReadError),
    /// Nothing is left to do.
    Done,
    TooSlow(&'static str),
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(
        stream: TcpStream,
        handler: Arc<H>,
        context: Arc<H::Connection>,
        limits: Arc<Limits>,
        shutdown: CancellationToken,
    ) -> Connection<H> {
        let now = Instant::now();
        Connection {
            stream,
            handler,
            context,
            reader: FrameReader::new(),
            pending: FuturesOrdered::new(),
            pending_bytes: 0,
            out: Vec::new(),
            out_bytes: 0,
            out_replies: 0,
            prefixes: BytesMut::new(),
            reading: true,
            writing: true,
            last_active: now,
            timer: Box::pin(sleep_until(now + limits.idle_timeout)),
            shutdown: Box::pin(shutdown.cancelled_owned()),
            limits,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            match poll_fn(|context| self.poll_event(context)).await {
                Event::Frame(frame) => self.handle(frame).await,
                Event::Reply(answered) => {
                    self.pending_bytes -= answered.bytes;
                    self.stage(answered.reply);
                }
                Event::Flush => self.flush().await,
                Event::ReadFailed(error) => {
                    match error {
                        ReadError::Closed => {}
                        error => tracing::debug!("reading ends: {error}"),
                    }
                    self.reading = false;
                }
                Event::TooSlow(what) => {
                    tracing::debug!("connection closed: {what}");
                    return;
                }
                Event::Done => return,
            }
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Poll::Ready(Some(answered)) = self.pending.poll_next_unpin(context) {
            return Poll::Ready(Event::Reply(answered));
        }
        // With the next request here already, its answer can leave together with these.
        let gathering = self.may_gather() && self.may_read() && self.reader.has_frame();
        if !self.out.is_empty() && !gathering {
            return Poll::Ready(Event::Flush);
        }
        if self.reading && self.shutdown.as_mut().poll(context).is_ready() {
            self.reading = false;
        }
        if self.may_read() {
            match self.reader.poll_frame(context, &mut self.stream, &self.limits) {
                Poll::Ready(Ok(frame)) => return Poll::Ready(Event::Frame(frame)),
                Poll::Ready(Err(error)) => return Poll::Ready(Event::ReadFailed(error)),
                Poll::Pending => {}
            }
        }
        if !self.reading && self.pending.is_empty() {
            return Poll::Ready(Event::Done);
        }
        self.poll_timer(context)
    }

    fn may_read(&self) -> bool {
        self.reading
            && (self.pending.is_empty()
                || self.pending.len() < self.limits.max_in_flight_requests_per_connection
                    && self.pending_bytes < self.limits.in_flight_bytes.total() / SHARE_OF_BUDGET)
    }

    fn may_gather(&self) -> bool {
        self.out_replies < MAX_GATHERED_REPLIES && self.out_bytes < MAX_GATHERED_BYTES
    }

    /// The timer is moved only when it fires or when a deadline before it appears, never per request.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        loop {
            let frame_deadline = if self.reading { self.reader.deadline(&self.limits) } else { None };
            match frame_deadline {
                Some(deadline) if deadline < self.timer.deadline() => self.timer.as_mut().reset(deadline),
                _ => {}
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if frame_deadline.is_some_and(|deadline| deadline <= now) && self.may_read() {
                return Poll::Ready(Event::TooSlow("a request did not arrive in time"));
            }
            // Whoever waits for an answer is not idle.
            if !self.pending.is_empty() {
                self.last_active = now;
            }
            let idle_deadline = self.last_active + self.limits.idle_timeout;
            if idle_deadline <= now {
                return Poll::Ready(Event::TooSlow("idle"));
            }
            let next = match frame_deadline {
                Some(deadline) if deadline > now => idle_deadline.min(deadline),
                _ => idle_deadline,
            };
            self.timer.as_mut().reset(next);
        }
    }

    /// Polls the request once, here and now: later ones of this connection find its effects done.
    async fn handle(&mut self, frame: Frame) {
        let Frame { body, share } = frame;
        let bytes = body.len();
        self.last_active = Instant::now();
        self.limits.metrics.bytes_in.inc_by(bytes as u64 + 4);
        let mut future: ReplyFuture = Box::pin(self.handler.handle(&self.context, body));
        let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        let state = match first {
            Poll::Ready(reply) if self.pending.is_empty() => {
                drop(share);
                self.stage(reply);
                return;
            }
            Poll::Ready(reply) => SlotState::Ready(reply),
            Poll::Pending => SlotState::Waiting { future, _share: share },
        };
        self.pending_bytes += bytes;
        self.pending.push_back(Slot { state: Some(state), bytes });
    }

    fn stage(&mut self, reply: Reply) {
        match reply {
            Reply::Send(chunks) if self.writing => {
                let length: usize = chunks.iter().map(Chunk::len).sum();
                let Ok(prefix) = i32::try_from(length) else {
                    tracing::error!("an answer of {length} bytes cannot be sent");
                    self.abandon();
                    return;
                };
                if self.prefixes.capacity() < 4 {
                    self.prefixes = BytesMut::with_capacity(PREFIX_BYTES);
                }
                self.prefixes.put_i32(prefix);
                self.out.push(Chunk::Bytes(self.prefixes.split().freeze()));
                self.out.extend(chunks);
                self.out_bytes += length + 4;
                self.out_replies += 1;
            }
            Reply::Send(_) | Reply::None => {}
            Reply::Close => {
                // Earlier answers still go out; later requests get none, though what they began goes on.
                self.reading = false;
                self.writing = false;
            }
        }
    }

    async fn flush(&mut self) {
        let written = write_chunks(&self.stream, &mut self.out, self.limits.idle_timeout).await;
        match written {
            Ok(()) => {
                self.limits.metrics.bytes_out.inc_by(self.out_bytes as u64);
                self.last_active = Instant::now();
            }
            Err(error) => {
                match error.kind() {
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                        tracing::debug!("the client has gone: {error}");
                    }
                    io::ErrorKind::TimedOut => {
                        tracing::info!("connection closed: it does not take its answers")
                    }
                    _ => tracing::warn!("writing an answer failed: {error}"),
                }
                self.abandon();
            }
        }
        self.out.clear();
        self.out_bytes = 0;
        self.out_replies = 0;
    }

    /// The client gets no more answers, and no part of one that could be taken for the next.
    fn abandon(&mut self) {
        self.reading = false;
        self.writing = false;
    }
}

/// A request's place in the queue.
struct Slot {
    /// `None` after it has been answered.
    state: Option<SlotState>,
    bytes: usize,
}

enum SlotState {
    Ready(Reply),
    Waiting { future: ReplyFuture, _share: Share },
}

struct Answered {
    reply: Reply,
    bytes: usize,
}

impl Future for Slot {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let bytes = self.bytes;
        let reply = match self.state.take() {
            Some(SlotState::Ready(reply)) => reply,
            Some(SlotState::Waiting { mut future, _share }) => match future.as_mut().poll(context) {
                Poll::Ready(reply) => reply,
                Poll::Pending => {
                    self.state = Some(SlotState::Waiting { future, _share });
                    return Poll::Pending;
                }
            },
            None => Reply::Close,
        };
        Poll::Ready(Answered { reply, bytes })
    }
}
