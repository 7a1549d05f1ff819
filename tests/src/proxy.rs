//! A TCP link that can be broken: in front of one listener, it forwards, slows down, falls silent, resets,
//! or refuses. What `tc netem` would do, without its rights.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const CHUNK_BYTES: usize = 64 << 10;
const BACKLOG: u32 = 1024;

/// What a link does to its connections, those that are there and those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Open,
    /// Nobody listens: connections are reset, new ones refused.
    Refused,
    /// A router that is gone: connections are taken, nothing goes through, nothing is said.
    Silent,
    /// What is asked arrives, no answer comes back.
    NoAnswers,
    /// What is asked does not arrive; what was answered before comes back.
    NoRequests,
    /// Each chunk waits, and follows the last one at this rate at most.
    Slow {
        delay: Duration,
        bytes_per_second: u32,
    },
}

impl Link {
    fn forwards(self, direction: Direction) -> bool {
        match self {
            Link::Open | Link::Slow { .. } => true,
            Link::Refused | Link::Silent => false,
            Link::NoAnswers => direction == Direction::Request,
            Link::NoRequests => direction == Direction::Answer,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

/// Ends with all its connections when dropped.
pub struct Proxy {
    address: String,
    link: Arc<watch::Sender<Link>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Listens on `address` for connections to `target`.
    pub async fn start(address: &str, target: &str) -> Result<Proxy> {
        let (link, watching) = watch::channel(Link::Open);
        let listener = listen(address)?;
        let task = tokio::spawn(serve(listener, address.to_owned(), target.to_owned(), watching));
        Ok(Proxy { address: address.to_owned(), link: Arc::new(link), task })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listen(address: &str) -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address.parse().with_context(|| address.to_owned())?)?;
    Ok(socket.listen(BACKLOG)?)
}

async fn serve(listener: TcpListener, address: String, target: String, mut link: watch::Receiver<Link>) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let now = *link.borrow_and_update();
        if now == Link::Refused {
            listener = None;
            connections.abort_all();
        } else if listener.is_none() {
            // The address may still be held by a connection that is just ending.
            listener = listen(&address).ok();
            if listener.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        }
        while connections.try_join_next().is_some() {}
        tokio::select! {
            changed = link.changed() => if changed.is_err() { return },
            accepted = accept(listener.as_ref()) => if let Some(client) = accepted {
                connections.spawn(connect(client, target.clone(), link.clone()));
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn connect(client: TcpStream, target: String, link: watch::Receiver<Link>) {
    let mut watching = link.clone();
    // A silent link does not even reach the other side.
    if watching.wait_for(|link| link.forwards(Direction::Request)).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(&target).await else { return reset(client) };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let requests = pump(client_read, server_write, Direction::Request, link.clone());
    let answers = pump(server_read, client_write, Direction::Answer, link);
    tokio::join!(requests, answers);
}

fn reset(stream: TcpStream) {
    // As the listener's own kernel would answer.
    let _ = stream.set_zero_linger();
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    mut link: watch::Receiver<Link>,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        if link.wait_for(|link| link.forwards(direction)).await.is_err() {
            return;
        }
        let count = tokio::select! {
            changed = link.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = from.read(&mut buffer) => read.unwrap_or(0),
        };
        if count == 0 {
            let _ = to.shutdown().await;
            return;
        }
        let now = *link.borrow();
        if let Link::Slow { delay, bytes_per_second } = now {
            let transfer = Duration::from_secs_f64(count as f64 / f64::from(bytes_per_second.max(1)));
            tokio::select! {
                () = tokio::time::sleep(delay + transfer) => {}
                // Healed: what waits goes through at once.
                _ = link.wait_for(|link| *link != now) => {}
            }
        }
        // What was read while the link fell silent is late, not lost, as with TCP.
        if link.wait_for(|link| link.forwards(direction)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::time::timeout;

    use super::*;
    use crate::ports::cluster_host;

    const SHORT: Duration = Duration::from_millis(150);
    const LONG: Duration = Duration::from_secs(10);

    /// Answers each byte with itself.
    async fn echo(address: &str) -> Result<()> {
        let listener = TcpListener::bind(address).await?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Ok(())
    }

    async fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
        stream.write_all(&[byte]).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn a_link_falls_silent_slows_down_refuses_and_heals() -> Result<()> {
        let host = cluster_host();
        let (front, back) = (format!("{host}:7001"), format!("{host}:7002"));
        echo(&back).await?;
        let proxy = Proxy::start(&front, &back).await?;
        let mut stream = TcpStream::connect(proxy.address()).await?;
        assert_eq!(ask(&mut stream, 1).await?, 1);

        for silent in [Link::Silent, Link::NoAnswers, Link::NoRequests] {
            proxy.set(silent);
            assert!(timeout(SHORT, ask(&mut stream, 2)).await.is_err(), "{silent:?} lets an answer through");
            proxy.set(Link::Open);
            assert_eq!(timeout(LONG, stream.read_u8()).await??, 2, "{silent:?} lost what was sent");
        }

        proxy.set(Link::Slow { delay: SHORT, bytes_per_second: 1_000 });
        let begin = Instant::now();
        assert_eq!(ask(&mut stream, 3).await?, 3);
        assert!(begin.elapsed() >= 2 * SHORT);

        proxy.set(Link::Refused);
        assert!(timeout(LONG, ask(&mut stream, 4)).await?.is_err());
        let refused = async {
            while TcpStream::connect(&front).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, refused).await?;

        proxy.set(Link::Open);
        let healed = async {
            loop {
                if let Ok(mut stream) = TcpStream::connect(&front).await
                    && matches!(ask(&mut stream, 5).await, Ok(5))
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, healed).await?;
        Ok(())
    }
}
