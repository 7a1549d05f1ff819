//! GET of a daemon's HTTP server.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        self.status == 200
    }
}

pub async fn get(address: &str, path: &str) -> Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        anyhow::Ok(text)
    };
    let text = timeout(LIMIT, exchange).await.with_context(|| format!("GET {address}{path}"))??;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no head in {text:?}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answer { status: status.with_context(|| format!("no status in {head:?}"))?, body: body.to_owned() })
}
