//! What is no request closes its connection and nothing else.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::Cluster;

async fn send(address: &str, frame: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&(frame.len() as i32).to_be_bytes()).await.unwrap();
    stream.write_all(frame).await.unwrap();
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut answer)).await.unwrap();
    answer.truncate(read.unwrap_or(0));
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_frames_and_unknown_versions() {
    let cluster = Cluster::start().await;
    let address = cluster.address();
    for (what, frame) in [
        ("an unknown API", &[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff][..]),
        ("an API that is not served", &[0, 11, 0, 0, 0, 0, 0, 1, 0xff, 0xff]),
        ("an unknown version of Metadata", &[0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff]),
        ("a header that is cut off", &[0, 3, 0, 9, 0, 0, 0, 1, 0, 50]),
        ("two billion topics", &[0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
    ] {
        assert_eq!(send(&address, frame).await, [0_u8; 0], "{what}");
    }
    // ApiVersions 127: answered in version 0 with UNSUPPORTED_VERSION.
    let answer = send(&address, &[0, 18, 0, 127, 0, 0, 0, 7, 0xff, 0xff, 0]).await;
    assert_eq!(answer.get(4..10), Some(&[0, 0, 0, 7, 0, 35][..]), "{answer:?}");
    cluster.connect().await;
    cluster.stop().await;
}
