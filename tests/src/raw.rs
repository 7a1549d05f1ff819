//! Bytes on a socket, for what no client sends.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A whole frame, without its length.
    Frame(Vec<u8>),
    /// The other side ended the connection.
    Closed,
    /// Nothing within the time.
    Silence,
}

pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    pub async fn open(address: &str) -> Result<RawConnection> {
        let stream = timeout(Duration::from_secs(3), TcpStream::connect(address))
            .await
            .with_context(|| format!("connect to {address}"))?
            .with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(RawConnection { stream })
    }

    /// Writes all; that the other side closes meanwhile is no error, the next read shows it.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = timeout(Duration::from_secs(10), self.stream.write_all(bytes)).await;
    }

    /// Ends the sending direction alone.
    pub async fn finish_sending(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    pub async fn answer(&mut self, within: Duration) -> Result<Answer> {
        match timeout(within, self.read_frame()).await {
            Ok(answer) => answer,
            Err(_) => Ok(Answer::Silence),
        }
    }

    async fn read_frame(&mut self) -> Result<Answer> {
        let mut length = [0; 4];
        if self.stream.read_exact(&mut length).await.is_err() {
            return Ok(Answer::Closed);
        }
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        ensure!(length <= MAX_ANSWER_BYTES, "an answer of {length} bytes");
        let mut frame = vec![0; length];
        match self.stream.read_exact(&mut frame).await {
            Ok(_) => Ok(Answer::Frame(frame)),
            Err(_) => Ok(Answer::Closed),
        }
    }
}

/// A body behind its length.
pub fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as i32).to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// A whole request; `flexible` adds the header's empty tagged fields.
pub fn request(key: i16, version: i16, correlation_id: i32, flexible: bool, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(key.to_be_bytes());
    bytes.extend(version.to_be_bytes());
    bytes.extend(correlation_id.to_be_bytes());
    // No client id.
    bytes.extend((-1_i16).to_be_bytes());
    if flexible {
        bytes.push(0);
    }
    bytes.extend(body);
    frame(&bytes)
}

/// Numbers that look random and are the same in every run.
pub struct Sequence(u64);

impl Sequence {
    pub fn new(seed: u64) -> Sequence {
        Sequence(seed | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.number() >> 32) as u8).collect()
    }
}
