//! S1 on a real socket: what a peer that is no Kafka broker may send.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::mirror::deps::{ConnectSettings, SourceConnector};
use crate::mirror::glue::PlaintextConnector;

async fn answered_with(frame: Vec<u8>) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 512];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(&frame).await;
        // Kept open: the client must not wait for more than what the length claims.
        let _ = stream.read(&mut request).await;
    });
    let settings = ConnectSettings {
        connect_timeout: Duration::from_millis(500),
        request_timeout: Duration::from_millis(500),
        max_response_bytes: 1 << 20,
    };
    let connected = PlaintextConnector.connect(&address, "client", settings).await.is_ok();
    server.abort();
    connected
}

#[tokio::test]
async fn s1_frames_that_are_no_answer_close_the_connection() {
    for length in [-1i32, 0, 3, i32::MAX, 2 << 20] {
        assert!(!answered_with(length.to_be_bytes().to_vec()).await, "length {length}");
    }
    let mut wrong_correlation = 10i32.to_be_bytes().to_vec();
    wrong_correlation.extend(77i32.to_be_bytes());
    wrong_correlation.extend([0; 6]);
    assert!(!answered_with(wrong_correlation).await);
    assert!(!answered_with(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()).await);
}
