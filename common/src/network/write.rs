//! Answers to the socket: small pieces gathered into one call, file ranges by sendfile.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Chunk {
    Bytes(Bytes),
    /// A range of a file, sent without a copy where the system can.
    File {
        file: Arc<File>,
        position: u64,
        length: usize,
    },
}

impl Chunk {
    pub fn len(&self) -> usize {
        match self {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::File { length, .. } => *length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Chunk {
        Chunk::Bytes(bytes)
    }
}

/// Pieces gathered into one system call. The system's limit is 1024.
const MAX_GATHERED: usize = 64;
/// One sendfile call, so that a thread of the runtime is not kept by a cold file for long.
const MAX_SENDFILE_BYTES: usize = 1 << 20;
/// Buffer of the fallback without sendfile.
const COPY_BUFFER_BYTES: usize = 256 << 10;

/// Writes all chunks in order. Fails when the peer takes nothing for `stall_timeout`. After an error
/// the stream holds part of an answer and is of no use any more.
pub async fn write_chunks(
    stream: &TcpStream,
    chunks: &mut [Chunk],
    stall_timeout: Duration,
) -> io::Result<()> {
    let mut next = 0;
    while let Some(chunk) = chunks.get_mut(next) {
        match chunk {
            Chunk::Bytes(_) => next = write_gathered(stream, chunks, next, stall_timeout).await?,
            Chunk::File { file, position, length } => {
                send_file(stream, file, *position, *length, stall_timeout).await?;
                next += 1;
            }
        }
    }
    Ok(())
}

/// Writes the run of bytes chunks that begins at `first`; returns the index after it.
async fn write_gathered(
    stream: &TcpStream,
    chunks: &mut [Chunk],
    first: usize,
    stall_timeout: Duration,
) -> io::Result<usize> {
    let mut next = first;
    loop {
        let mut slices = [IoSlice::new(&[]); MAX_GATHERED];
        let mut count = 0;
        // Tells the system that a file range follows at once, so that the header before it does not
        // leave as a small packet of its own.
        let mut more = false;
        let mut end = next;
        for chunk in chunks.get(next..).unwrap_or_default() {
            let Chunk::Bytes(bytes) = chunk else {
                more = true;
                break;
            };
            let Some(slot) = slices.get_mut(count) else {
                more = true;
                break;
            };
            if !bytes.is_empty() {
                *slot = IoSlice::new(bytes);
                count += 1;
            }
            end += 1;
        }
        if count == 0 {
            return Ok(end);
        }
        let flags = if more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
        let slices = slices.get(..count).unwrap_or_default();
        let written = when_writable(stream, stall_timeout, || {
            Ok(sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
        })
        .await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        next = advance(chunks, next, end, written);
    }
}

/// Skips `written` bytes from chunk `next` on; returns the first chunk that is not written whole.
fn advance(chunks: &mut [Chunk], mut next: usize, end: usize, mut written: usize) -> usize {
    while next < end {
        let Some(Chunk::Bytes(bytes)) = chunks.get_mut(next) else { break };
        if written < bytes.len() {
            bytes.advance(written);
            break;
        }
        written -= bytes.len();
        next += 1;
    }
    next
}

async fn send_file(
    stream: &TcpStream,
    file: &File,
    position: u64,
    length: usize,
    stall_timeout: Duration,
) -> io::Result<()> {
    let mut offset = position;
    let mut remaining = length;
    while remaining > 0 {
        let step = remaining.min(MAX_SENDFILE_BYTES);
        let sent = when_writable(stream, stall_timeout, || {
            Ok(rustix::fs::sendfile(stream, file, Some(&mut offset), step)?)
        })
        .await;
        match sent {
            // The file is shorter than the answer's length already promised.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(sent) => remaining -= sent,
            Err(error) if cannot_send_file(&error) => {
                return copy_file(stream, file, offset, remaining, stall_timeout).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Some file systems know no sendfile.
fn cannot_send_file(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

async fn copy_file(
    stream: &TcpStream,
    file: &File,
    mut position: u64,
    mut remaining: usize,
    stall_timeout: Duration,
) -> io::Result<()> {
    let mut buffer = vec![0; remaining.min(COPY_BUFFER_BYTES)];
    while remaining > 0 {
        let step = remaining.min(buffer.len());
        let part = buffer.get_mut(..step).unwrap_or_default();
        file.read_exact_at(part, position)?;
        let mut rest: &[u8] = part;
        while !rest.is_empty() {
            let written = when_writable(stream, stall_timeout, || {
                Ok(rustix::net::send(stream, rest, SendFlags::NOSIGNAL)?)
            })
            .await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = rest.get(written..).unwrap_or_default();
        }
        position += step as u64;
        remaining -= step;
    }
    Ok(())
}

/// Runs the call, waiting for room in the socket as often as it says that there is none.
async fn when_writable(
    stream: &TcpStream,
    stall_timeout: Duration,
    mut call: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match stream.try_io(Interest::WRITABLE, &mut call) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::timeout(stall_timeout, stream.writable())
                    .await
                    .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => {
                // A peer that always has room must not keep this thread from other connections.
                tokio::task::coop::consume_budget().await;
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    const STALL: Duration = Duration::from_secs(5);

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    fn file(content: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(file)
    }

    async fn written(mut chunks: Vec<Chunk>) -> Vec<u8> {
        let (server, mut client) = pair().await;
        let writing = tokio::spawn(async move {
            write_chunks(&server, &mut chunks, STALL).await.unwrap();
        });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        writing.await.unwrap();
        received
    }

    #[tokio::test]
    async fn any_mix_of_chunks_arrives_in_order() {
        let content: Vec<u8> = (0..2_500_000_u32).map(|number| (number % 241) as u8).collect();
        let file = file(&content);
        let range = |position: usize, length: usize| Chunk::File {
            file: file.clone(),
            position: position as u64,
            length,
        };
        let bytes = |byte: u8, count: usize| Chunk::Bytes(Bytes::from(vec![byte; count]));
        let mut chunks = vec![range(5, 10), bytes(1, 0), range(0, 0)];
        // More than one call gathers, and more than a socket takes at once.
        chunks.extend((0..200).map(|number| bytes(number, usize::from(number) * 100)));
        chunks.extend([range(0, content.len()), bytes(9, 3 << 20), bytes(8, 1), range(7, 1)]);
        let mut expected = content[5..15].to_vec();
        for number in 0..200_u8 {
            expected.extend(std::iter::repeat_n(number, usize::from(number) * 100));
        }
        expected.extend_from_slice(&content);
        expected.extend(std::iter::repeat_n(9, 3 << 20));
        expected.extend([8, content[7]]);
        assert!(written(chunks).await == expected);
        assert!(written(Vec::new()).await.is_empty());
    }

    #[tokio::test]
    async fn a_file_without_sendfile_is_copied() {
        let content: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 239) as u8).collect();
        let (server, mut client) = pair().await;
        let source = file(&content);
        let writing =
            tokio::spawn(async move { copy_file(&server, &source, 11, 999_000 - 11, STALL).await.unwrap() });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        writing.await.unwrap();
        assert!(received == content[11..999_000]);
        assert!(cannot_send_file(&Errno::INVAL.into()));
        assert!(!cannot_send_file(&Errno::PIPE.into()));
    }

    #[tokio::test]
    async fn a_file_that_is_too_short_is_an_error() {
        let (server, _client) = pair().await;
        let mut chunks = [Chunk::File { file: file(b"short"), position: 2, length: 4 }];
        let error = write_chunks(&server, &mut chunks, STALL).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = copy_file(&server, &file(b"short"), 2, 4, STALL).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_an_error() {
        let (server, _client) = pair().await;
        let mut chunks = [Chunk::Bytes(Bytes::from(vec![0; 64 << 20]))];
        let error = write_chunks(&server, &mut chunks, Duration::from_millis(30)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
