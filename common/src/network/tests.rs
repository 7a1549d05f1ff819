//! A server and plain sockets.

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

/// What a request asks of the test's handler: the byte after 8 bytes of header.
const ECHO: u8 = b'e';
const NO_REPLY: u8 = b'n';
const CLOSE: u8 = b'c';
/// Waits for a permit of the gate, then echoes.
const GATED: u8 = b'g';
const FILE: u8 = b'f';
/// Answers with a mebibyte.
const LARGE: u8 = b'l';
const PANIC: u8 = b'p';

struct TestHandler {
    gate: Arc<Semaphore>,
    file: Arc<File>,
    /// Requests in the order in which they took effect.
    begun: Arc<Mutex<Vec<Bytes>>>,
    open: Arc<AtomicUsize>,
}

impl Handler for TestHandler {
    type Connection = ConnectionInfo;

    fn connected(&self, info: ConnectionInfo) -> ConnectionInfo {
        self.open.fetch_add(1, Ordering::SeqCst);
        info
    }

    fn disconnected(&self, _: &Arc<ConnectionInfo>) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn handle(
        &self,
        _: &Arc<ConnectionInfo>,
        frame: BytesMut,
    ) -> impl Future<Output = Reply> + Send + 'static {
        let (gate, file, begun) = (self.gate.clone(), self.file.clone(), self.begun.clone());
        async move {
            let frame = frame.freeze();
            begun.lock().push(frame.slice(8.min(frame.len())..));
            match frame.get(8).copied() {
                Some(NO_REPLY) => Reply::None,
                Some(CLOSE) => Reply::Close,
                Some(GATED) => {
                    gate.acquire().await.unwrap().forget();
                    Reply::from(frame)
                }
                Some(FILE) => Reply::Send(vec![
                    Chunk::Bytes(Bytes::from_static(b"<")),
                    Chunk::File { file: file.clone(), position: 1, length: FILE_BYTES - 2 },
                    Chunk::Bytes(Bytes::new()),
                    Chunk::Bytes(Bytes::from_static(b"|")),
                    Chunk::File { file, position: 0, length: 3 },
                ]),
                Some(LARGE) => Reply::from(Bytes::from(vec![b'x'; 1 << 20])),
                Some(PANIC) => panic!("expected by this test"),
                _ => Reply::from(frame),
            }
        }
    }
}

const FILE_BYTES: usize = 3 << 20;

fn file_content() -> Vec<u8> {
    (0..FILE_BYTES).map(|position| (position % 251) as u8).collect()
}

struct Server {
    address: SocketAddr,
    gate: Arc<Semaphore>,
    begun: Arc<Mutex<Vec<Bytes>>>,
    open: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

async fn start(limits: Limits) -> Server {
    let listener = bind("127.0.0.1", 0).await.unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&file_content()).unwrap();
    let handler = TestHandler {
        gate: Arc::new(Semaphore::new(0)),
        file: Arc::new(file),
        begun: Arc::default(),
        open: Arc::default(),
    };
    let address = listener.local_addr().unwrap();
    let (gate, begun, open) = (handler.gate.clone(), handler.begun.clone(), handler.open.clone());
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, "TEST", Arc::new(handler), limits, shutdown.clone()));
    Server { address, gate, begun, open, shutdown, serving }
}

impl Server {
    async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream }
    }

    async fn wait_for(&self, what: &str, condition: impl Fn(&Server) -> bool) {
        let patience = async {
            while !condition(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), patience).await.unwrap_or_else(|_| panic!("{what}"));
    }
}

struct Client {
    stream: TcpStream,
}

fn request(operation: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend_from_slice(&(data.len() as i32 + 9).to_be_bytes());
    frame.extend_from_slice(&[0; 8]);
    frame.push(operation);
    frame.extend_from_slice(data);
    frame
}

impl Client {
    async fn send(&mut self, operation: u8, data: &[u8]) {
        self.stream.write_all(&request(operation, data)).await.unwrap();
    }

    async fn receive(&mut self) -> Vec<u8> {
        let read = async {
            let length = self.stream.read_i32().await.unwrap();
            let mut body = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut body).await.unwrap();
            body
        };
        tokio::time::timeout(Duration::from_secs(10), read).await.expect("an answer")
    }

    /// The data of an echoed request.
    async fn receive_echo(&mut self) -> Vec<u8> {
        self.receive().await.split_off(9)
    }

    async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_secs(10), self.stream.read(&mut byte)).await;
        matches!(read, Ok(Ok(0) | Err(_)))
    }
}

#[tokio::test]
async fn requests_take_effect_at_once_and_are_answered_in_their_order() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    let mut sent = Vec::new();
    for (operation, data) in [(GATED, "0"), (ECHO, "1"), (NO_REPLY, "2"), (GATED, "3"), (ECHO, "4")] {
        sent.extend_from_slice(&request(operation, data.as_bytes()));
    }
    client.stream.write_all(&sent).await.unwrap();
    server.wait_for("all begin", |server| server.begun.lock().len() == 5).await;
    assert_eq!(*server.begun.lock(), ["g0", "e1", "n2", "g3", "e4"]);
    server.gate.add_permits(1);
    assert_eq!(client.receive_echo().await, b"0");
    assert_eq!(client.receive_echo().await, b"1");
    server.gate.add_permits(1);
    assert_eq!(client.receive_echo().await, b"3");
    assert_eq!(client.receive_echo().await, b"4");
}

#[tokio::test]
async fn large_requests_and_many_small_ones_arrive_whole() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    let large: Vec<u8> = (0..5 << 20).map(|position| (position % 253) as u8).collect();
    client.send(ECHO, &large).await;
    assert_eq!(client.receive_echo().await, large);
    let (mut reader, mut writer) = client.stream.into_split();
    let writing = tokio::spawn(async move {
        let all: Vec<u8> = (0..10_000_u32).flat_map(|number| request(ECHO, &number.to_be_bytes())).collect();
        writer.write_all(&all).await.unwrap();
        writer
    });
    for number in 0..10_000_u32 {
        let mut answer = [0; 4 + 9 + 4];
        reader.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer.last_chunk(), Some(&number.to_be_bytes()));
    }
    drop(writing.await.unwrap());
}

#[tokio::test]
async fn file_ranges_are_sent_between_bytes() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    let content = file_content();
    let expected = [b"<", &content[1..FILE_BYTES - 1], b"|", &content[..3]].concat();
    client.send(FILE, b"").await;
    client.send(ECHO, b"after").await;
    assert!(client.receive().await == expected);
    assert_eq!(client.receive_echo().await, b"after");
}

#[tokio::test]
async fn a_wrong_length_closes_only_its_connection() {
    let limits = Limits { max_frame_bytes: 1000, ..Limits::default() };
    let server = start(limits).await;
    let mut good = server.connect().await;
    for length in [-1, i32::MIN, 0, 1, 7, 1001, i32::MAX] {
        let mut client = server.connect().await;
        client.send(ECHO, b"before").await;
        client.stream.write_all(&length.to_be_bytes()).await.unwrap();
        assert_eq!(client.receive_echo().await, b"before", "{length}");
        assert!(client.is_closed().await, "{length}");
    }
    good.send(ECHO, &[b'x'; 1000 - 9]).await;
    assert_eq!(good.receive_echo().await.len(), 991);
    // Cut at every byte.
    let frame = request(ECHO, b"cut");
    for end in 0..frame.len() {
        let mut client = server.connect().await;
        client.stream.write_all(&frame[..end]).await.unwrap();
        client.stream.shutdown().await.unwrap();
        assert!(client.is_closed().await);
    }
    good.send(ECHO, b"well").await;
    assert_eq!(good.receive_echo().await, b"well");
    server.wait_for("all others are gone", |server| server.open.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn close_comes_after_earlier_answers_and_before_later_ones() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    let all = [request(GATED, b"1"), request(CLOSE, b""), request(ECHO, b"2")].concat();
    client.stream.write_all(&all).await.unwrap();
    server.gate.add_permits(1);
    assert_eq!(client.receive_echo().await, b"1");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn what_a_client_sent_before_it_left_is_still_done() {
    let server = start(Limits::default()).await;
    let mut client = server.connect().await;
    client.send(GATED, b"slow").await;
    client.send(NO_REPLY, b"last").await;
    drop(client);
    server.wait_for("both begin", |server| server.begun.lock().len() == 2).await;
    server.gate.add_permits(1);
    server.wait_for("the connection ends", |server| server.open.load(Ordering::SeqCst) == 0).await;
    assert_eq!(server.gate.available_permits(), 0, "the slow one came to its end");
}

#[tokio::test]
async fn a_panic_ends_only_its_connection() {
    let server = start(Limits::default()).await;
    let mut bad = server.connect().await;
    let mut good = server.connect().await;
    bad.send(PANIC, b"").await;
    assert!(bad.is_closed().await);
    good.send(ECHO, b"well").await;
    assert_eq!(good.receive_echo().await, b"well");
    server.wait_for("it is forgotten", |server| server.open.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn connections_above_the_limit_are_closed() {
    let server = start(Limits { max_connections_per_ip: 2, ..Limits::default() }).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for client in [&mut first, &mut second] {
        client.send(ECHO, b"x").await;
        client.receive_echo().await;
    }
    assert!(server.connect().await.is_closed().await);
    drop(first);
    server.wait_for("one is gone", |server| server.open.load(Ordering::SeqCst) == 1).await;
    // Its place is free a moment after the handler has heard of its end.
    tokio::task::yield_now().await;
    let mut third = server.connect().await;
    third.send(ECHO, b"x").await;
    third.receive_echo().await;
}

#[tokio::test]
async fn idle_connections_end_and_waiting_ones_do_not() {
    let server = start(Limits { idle_timeout: Duration::from_millis(250), ..Limits::default() }).await;
    let mut idle = server.connect().await;
    let mut waiting = server.connect().await;
    waiting.send(GATED, b"w").await;
    assert!(idle.is_closed().await);
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.gate.add_permits(1);
    assert_eq!(waiting.receive_echo().await, b"w");
    assert!(waiting.is_closed().await);
}

#[tokio::test]
async fn a_request_that_trickles_is_cut_and_gives_its_memory_back() {
    let budget = InFlightBytes::new(1 << 20);
    let limits = Limits {
        frame_timeout: Duration::from_millis(300),
        in_flight_bytes: budget.clone(),
        ..Limits::default()
    };
    let server = start(limits).await;
    let mut slow = server.connect().await;
    // 66,000 bytes: just large enough to be charged as a large request.
    slow.stream.write_all(&[0, 1, 1, 208, 1, 2]).await.unwrap();
    server.wait_for("its first part is charged", |_| budget.available() == (1 << 20) - (64 << 10)).await;
    assert!(slow.is_closed().await);
    let mut head_only = server.connect().await;
    head_only.stream.write_all(&[0]).await.unwrap();
    assert!(head_only.is_closed().await);
    assert_eq!(budget.available(), 1 << 20);
}

#[tokio::test]
async fn the_budget_is_shared_and_waited_for() {
    let budget = InFlightBytes::new(128 << 10);
    let server = start(Limits { in_flight_bytes: budget.clone(), ..Limits::default() }).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    first.send(GATED, &[0; 100_000]).await;
    server.wait_for("the first begins", |server| server.begun.lock().len() == 1).await;
    second.send(ECHO, &[1; 90_000]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.begun.lock().len(), 1, "the second waits");
    server.gate.add_permits(1);
    assert_eq!(first.receive_echo().await.len(), 100_000);
    assert_eq!(second.receive_echo().await.len(), 90_000);
    assert_eq!(budget.available(), 128 << 10);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from() {
    let limits = Limits { max_in_flight_requests_per_connection: 4, ..Limits::default() };
    let server = start(limits).await;
    let mut client = server.connect().await;
    for _ in 0..200 {
        client.send(LARGE, b"").await;
    }
    // The system's buffers hold a few answers, and nothing more is begun once they are full.
    let mut begun = usize::MAX;
    while begun != server.begun.lock().len() {
        begun = server.begun.lock().len();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun < 100, "{begun} requests were handled though no answer was read");
    for _ in 0..200 {
        assert_eq!(client.receive().await.len(), 1 << 20);
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    let server = start(Limits { idle_timeout: Duration::from_millis(50), ..Limits::default() }).await;
    let mut client = server.connect().await;
    let _ = client.stream.write_all(&request(LARGE, b"").repeat(40)).await;
    server.wait_for("it is cut", |server| server.open.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let limits = Limits { max_in_flight_requests_per_connection: 3, ..Limits::default() };
    let server = start(limits).await;
    let mut client = server.connect().await;
    client.stream.write_all(&request(GATED, b"x").repeat(10)).await.unwrap();
    server.wait_for("three begin", |server| server.begun.lock().len() == 3).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(server.begun.lock().len(), 3);
    server.gate.add_permits(10);
    for _ in 0..10 {
        assert_eq!(client.receive_echo().await, b"x");
    }
}

#[tokio::test]
async fn shutdown_lets_pending_answers_out_and_then_ends() {
    let server = start(Limits::default()).await;
    let mut busy = server.connect().await;
    let mut idle = server.connect().await;
    busy.send(GATED, b"pending").await;
    server.wait_for("it begins", |server| server.begun.lock().len() == 1).await;
    server.shutdown.cancel();
    assert!(idle.is_closed().await);
    server.gate.add_permits(1);
    assert_eq!(busy.receive_echo().await, b"pending");
    assert!(busy.is_closed().await);
    server.serving.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn an_empty_host_listens_on_every_address() {
    let listener = bind("", 0).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
}
