//! The connection against a peer that answers what the test says, byte by byte.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::api::ApiKey;
use protocol::messages::api_versions_response::ApiVersion;
use protocol::messages::{ApiVersionsResponse, MetadataRequest, MetadataResponse};
use protocol::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{ClientError, ConnectOptions, Connection};

fn options() -> ConnectOptions {
    ConnectOptions {
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(5),
        max_response_bytes: 1 << 20,
        ..ConnectOptions::default()
    }
}

/// One request as the peer sees it.
struct Received {
    api_key: i16,
    version: i16,
    correlation_id: i32,
}

struct Peer {
    stream: TcpStream,
}

impl Peer {
    async fn receive(&mut self) -> Received {
        let length = self.stream.read_i32().await.expect("length");
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.expect("frame");
        let mut frame = Bytes::from(frame);
        Received { api_key: frame.get_i16(), version: frame.get_i16(), correlation_id: frame.get_i32() }
    }

    async fn answer(&mut self, response: Response, version: i16, correlation_id: i32) {
        let frame = protocol::encode_response_frame(&response, version, correlation_id).expect("encodes");
        let mut out = BytesMut::new();
        out.put_i32(frame.len() as i32);
        out.put_slice(&frame);
        self.stream.write_all(&out).await.expect("written");
    }

    async fn negotiate(&mut self) {
        let request = self.receive().await;
        assert_eq!((request.api_key, request.version), (18, 3));
        self.answer(versions(), 3, request.correlation_id).await;
    }
}

fn versions() -> Response {
    let range = |key: ApiKey, min: i16, max: i16| {
        ApiVersion::default().with_api_key(key.code()).with_min_version(min).with_max_version(max)
    };
    let ranges = vec![range(ApiKey::Metadata, 0, 9), range(ApiKey::Fetch, 90, 99)];
    Response::ApiVersions(ApiVersionsResponse::default().with_api_keys(ranges))
}

async fn bind() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    (listener, address)
}

async fn accept(listener: &TcpListener) -> Peer {
    Peer { stream: listener.accept().await.expect("accept").0 }
}

fn metadata_request() -> Request {
    Request::Metadata(MetadataRequest::default())
}

#[tokio::test]
async fn versions_are_negotiated_and_calls_answered() {
    let (listener, address) = bind().await;
    let script = async {
        let mut peer = accept(&listener).await;
        peer.negotiate().await;
        let request = peer.receive().await;
        assert_eq!((request.api_key, request.version), (3, 9), "the highest that both know");
        let response = Response::Metadata(MetadataResponse::default().with_throttle_time_ms(7));
        peer.answer(response, 9, request.correlation_id).await;
    };
    let client = async {
        let mut connection = Connection::connect(&address, "test", options()).await.expect("connects");
        assert_eq!(connection.version_of(ApiKey::Fetch), None);
        let answered = connection.call_latest(metadata_request()).await.expect("answered");
        assert!(matches!(answered, Response::Metadata(response) if response.throttle_time_ms == 7));
        let refused = connection.call_latest(Request::Fetch(Default::default())).await;
        assert!(matches!(refused, Err(ClientError::UnsupportedApi { .. })));
        assert!(connection.is_usable());
    };
    tokio::join!(script, client);
}

#[tokio::test]
async fn an_old_node_is_asked_again_in_version_0() {
    let (listener, address) = bind().await;
    let script = async {
        let mut peer = accept(&listener).await;
        let request = peer.receive().await;
        assert_eq!(request.version, 3);
        let refusal = ApiVersionsResponse::default().with_error_code(35);
        peer.answer(Response::ApiVersions(refusal), 0, request.correlation_id).await;
        let request = peer.receive().await;
        assert_eq!(request.version, 0);
        peer.answer(versions(), 0, request.correlation_id).await;
    };
    let client = async {
        let connection = Connection::connect(&address, "test", options()).await.expect("connects");
        assert_eq!(connection.served_versions(ApiKey::Metadata), Some((0, 9)));
    };
    tokio::join!(script, client);
}

#[tokio::test]
async fn an_answer_that_is_claimed_too_large_is_not_allocated() {
    let (listener, address) = bind().await;
    let script = async {
        let mut peer = accept(&listener).await;
        peer.negotiate().await;
        peer.receive().await;
        peer.stream.write_all(&i32::MAX.to_be_bytes()).await.expect("written");
        peer
    };
    let client = async {
        let mut connection = Connection::connect(&address, "test", options()).await.expect("connects");
        let refused = connection.call_latest(metadata_request()).await;
        assert!(
            matches!(refused, Err(ClientError::ResponseSize { claimed, .. }) if claimed == i64::from(i32::MAX))
        );
        assert!(!connection.is_usable());
        let refused = connection.call_latest(metadata_request()).await;
        assert!(matches!(refused, Err(ClientError::Broken { .. })));
    };
    tokio::join!(script, client);
}

#[tokio::test]
async fn the_answer_to_another_request_is_not_taken() {
    let (listener, address) = bind().await;
    let script = async {
        let mut peer = accept(&listener).await;
        peer.negotiate().await;
        let request = peer.receive().await;
        let response = Response::Metadata(MetadataResponse::default());
        peer.answer(response, 9, request.correlation_id + 1).await;
        peer
    };
    let client = async {
        let mut connection = Connection::connect(&address, "test", options()).await.expect("connects");
        let refused = connection.call_latest(metadata_request()).await;
        assert!(matches!(refused, Err(ClientError::Correlation { .. })));
        assert!(!connection.is_usable());
    };
    tokio::join!(script, client);
}

#[tokio::test]
async fn a_silent_node_times_out_and_a_closed_one_is_told_apart() {
    let (listener, address) = bind().await;
    let script = async {
        let mut peer = accept(&listener).await;
        peer.negotiate().await;
        peer.receive().await;
        let mut second = accept(&listener).await;
        second.negotiate().await;
        second.receive().await;
        drop(second);
        peer
    };
    let client = async {
        let mut connection = Connection::connect(&address, "test", options()).await.expect("connects");
        let silent = connection.call_within(metadata_request(), 9, Duration::from_millis(20)).await;
        assert!(matches!(silent, Err(ClientError::Timeout { .. })));
        let mut connection = Connection::connect(&address, "test", options()).await.expect("connects");
        let closed = connection.call_latest(metadata_request()).await;
        assert!(matches!(closed, Err(ClientError::Closed { api: "Metadata", .. })));
    };
    tokio::join!(script, client);
}
