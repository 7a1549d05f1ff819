//! One TCP connection to a Kafka node, one request at a time.
//!
//! A call that fails or is dropped half way leaves an answer in the pipe that nobody waits for, so the
//! connection is unusable afterwards; the owner connects again. What the other side sends is untrusted:
//! a claimed length is bounded before anything is allocated, and memory grows only as bytes arrive.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use protocol::api::ApiKey;
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{Request, Response, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::error::ClientError;
use super::negotiation::PeerVersions;

/// How this program names itself in ApiVersions: our own nodes offer CreateTopics 8 to no other name.
pub const SOFTWARE_NAME: &str = protocol::api::CLIENT_SOFTWARE_NAME;

const UNSUPPORTED_VERSION: i16 = 35;
/// First growth step of a response buffer.
const READ_STEP_BYTES: usize = 64 * 1024;
/// A kept buffer is at most so many times as large as the last answer in it.
const KEPT_SHARE: usize = 16;

#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Bounds name resolution, connecting and the version negotiation, each.
    pub connect_timeout: Duration,
    /// Bounds each call.
    pub request_timeout: Duration,
    pub max_response_bytes: usize,
    /// For one large answer after the other: the buffer of the last one takes the next, where nobody
    /// holds on to it.
    pub keep_buffer: bool,
    pub software_name: String,
    pub software_version: String,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            max_response_bytes: 100 * 1024 * 1024,
            keep_buffer: false,
            software_name: SOFTWARE_NAME.to_owned(),
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

pub struct Connection {
    stream: TcpStream,
    address: String,
    peer: SocketAddr,
    client_id: String,
    options: ConnectOptions,
    versions: PeerVersions,
    next_correlation_id: i32,
    broken: bool,
    buffer: BytesMut,
}

impl Connection {
    /// Connects and asks for the versions the node serves.
    pub async fn connect(
        address: &str,
        client_id: &str,
        options: ConnectOptions,
    ) -> Result<Connection, ClientError> {
        let stream = open(address, options.connect_timeout).await?;
        let peer = stream
            .peer_addr()
            .map_err(|source| ClientError::Connect { address: address.to_owned(), source })?;
        let mut connection = Connection {
            stream,
            address: address.to_owned(),
            peer,
            client_id: client_id.to_owned(),
            versions: PeerVersions::default(),
            options,
            next_correlation_id: 0,
            broken: false,
            buffer: BytesMut::new(),
        };
        connection.negotiate().await?;
        Ok(connection)
    }

    /// The address it was opened with.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// False after a failure or a dropped call: connect again.
    pub fn is_usable(&self) -> bool {
        !self.broken
    }

    /// The highest version of an API that both sides know; `None`: there is none.
    pub fn version_of(&self, key: ApiKey) -> Option<i16> {
        self.versions.highest_common(key)
    }

    /// The versions that the other side serves, whether this program knows them or not.
    pub fn served_versions(&self, key: ApiKey) -> Option<(i16, i16)> {
        self.versions.range(key as i16)
    }

    /// Sends a request and waits for its answer within the connection's request timeout.
    pub async fn call(&mut self, request: Request, version: i16) -> Result<Response, ClientError> {
        self.call_within(request, version, self.options.request_timeout).await
    }

    /// As `call`, in the highest version that both sides know.
    pub async fn call_latest(&mut self, request: Request) -> Result<Response, ClientError> {
        let key = request.key();
        let version = self.version_of(key).ok_or_else(|| ClientError::UnsupportedApi {
            address: self.address.clone(),
            api: key.name(),
            theirs: match self.versions.range(key as i16) {
                Some((min, max)) => format!("{min} to {max}"),
                None => "none".to_owned(),
            },
        })?;
        self.call(request, version).await
    }

    /// As `call` with a timeout of its own: for requests that wait at the other side.
    pub async fn call_within(
        &mut self,
        request: Request,
        version: i16,
        timeout: Duration,
    ) -> Result<Response, ClientError> {
        let key = request.key();
        let api = key.name();
        let (expected, body) = self.exchange(&request, key, version, timeout).await?;
        let decoded = protocol::decode_response(key, version, body);
        let (received, response) = decoded.map_err(|error| {
            self.broken = true;
            ClientError::Decode { address: self.address.clone(), api, version, reason: error.to_string() }
        })?;
        self.check_correlation(expected, received)?;
        Ok(response)
    }

    fn check_correlation(&mut self, expected: i32, received: i32) -> Result<(), ClientError> {
        if expected == received {
            return Ok(());
        }
        self.broken = true;
        Err(ClientError::Correlation { address: self.address.clone(), expected, received })
    }

    /// Writes the request, reads one frame; returns the correlation id it was sent with.
    async fn exchange(
        &mut self,
        request: &Request,
        key: ApiKey,
        version: i16,
        timeout: Duration,
    ) -> Result<(i32, Bytes), ClientError> {
        if self.broken {
            return Err(ClientError::Broken { address: self.address.clone() });
        }
        let api = key.name();
        let correlation_id = self.next_correlation_id;
        self.next_correlation_id = self.next_correlation_id.wrapping_add(1) & i32::MAX;
        let frame = protocol::encode_request(request, version, correlation_id, Some(&self.client_id))
            .map_err(|error| ClientError::Encode { api, version, reason: error.to_string() })?;

        // Until the whole answer is here; a dropped future leaves it set.
        self.broken = true;
        let deadline = Instant::now() + timeout;
        let sent_and_read = async {
            self.stream.write_all(&frame).await.map_err(|source| self.failed(api, source))?;
            self.read_frame(api).await
        };
        match timeout_at(deadline, sent_and_read).await {
            Ok(Ok(body)) => {
                self.broken = false;
                Ok((correlation_id, body))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ClientError::Timeout { address: self.address.clone(), api, timeout }),
        }
    }

    async fn read_frame(&mut self, api: &'static str) -> Result<Bytes, ClientError> {
        let mut length = [0_u8; 4];
        self.stream.read_exact(&mut length).await.map_err(|source| self.failed(api, source))?;
        let claimed = i32::from_be_bytes(length);
        let allowed = self.options.max_response_bytes;
        let length = usize::try_from(claimed).ok().filter(|length| (4..=allowed).contains(length));
        let Some(length) = length else {
            return Err(ClientError::ResponseSize {
                address: self.address.clone(),
                api,
                claimed: i64::from(claimed),
                allowed,
            });
        };
        let mut body = std::mem::take(&mut self.buffer);
        // Of a kept buffer this finds the room again that an earlier answer had, if its bytes are let go.
        body.reserve(length.min(READ_STEP_BYTES));
        while body.len() < length {
            if body.len() == body.capacity() {
                // Doubling keeps the copies linear, and what is reserved within what has arrived.
                body.reserve(body.len().min(length - body.len()));
            }
            let room = length - body.len();
            let read = (&mut self.stream).take(room as u64).read_buf(&mut body).await;
            match read {
                Ok(0) => return Err(ClientError::Closed { address: self.address.clone(), api }),
                Ok(_) => {}
                Err(source) => return Err(self.failed(api, source)),
            }
        }
        let answer = body.split().freeze();
        // A buffer that was needed once, for much more than now, is not kept for ever.
        if self.options.keep_buffer && body.capacity() <= KEPT_SHARE * length.max(READ_STEP_BYTES) {
            self.buffer = body;
        }
        Ok(answer)
    }

    fn failed(&self, api: &'static str, source: io::Error) -> ClientError {
        let address = self.address.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                ClientError::Closed { address, api }
            }
            _ => ClientError::Io { address, api, source },
        }
    }

    /// ApiVersions 3 names this software; a node that does not know it answers UNSUPPORTED_VERSION in
    /// version 0, and is asked again in that (as Kafka's own clients do).
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let mut response = self.ask_versions(3).await?;
        if response.error_code == UNSUPPORTED_VERSION {
            response = self.ask_versions(0).await?;
        }
        if response.error_code != 0 {
            self.broken = true;
            return Err(ClientError::Negotiation {
                address: self.address.clone(),
                error_code: response.error_code,
            });
        }
        self.versions = PeerVersions::new(
            response.api_keys.iter().map(|range| (range.api_key, range.min_version, range.max_version)),
        );
        Ok(())
    }

    async fn ask_versions(&mut self, version: i16) -> Result<ApiVersionsResponse, ClientError> {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request.client_software_name = StrBytes::from_string(self.options.software_name.clone());
            request.client_software_version = StrBytes::from_string(self.options.software_version.clone());
        }
        let key = ApiKey::ApiVersions;
        let request = Request::ApiVersions(request);
        let (expected, body) = self.exchange(&request, key, version, self.options.connect_timeout).await?;
        // The answer of an older node to version 3 is version 0, with nothing but the error code to
        // tell: it stands right after the correlation id in every version.
        let mut head = body.clone();
        let error_code = if head.remaining() >= 6 {
            head.advance(4);
            head.get_i16()
        } else {
            0
        };
        let read_as = if error_code == UNSUPPORTED_VERSION { 0 } else { version };
        let (received, response) = protocol::decode_response(key, read_as, body).map_err(|error| {
            self.broken = true;
            ClientError::Decode {
                address: self.address.clone(),
                api: key.name(),
                version: read_as,
                reason: error.to_string(),
            }
        })?;
        self.check_correlation(expected, received)?;
        match response {
            Response::ApiVersions(response) => Ok(response),
            _ => Err(ClientError::UnexpectedResponse { address: self.address.clone(), api: key.name() }),
        }
    }
}

/// Tries each address the name resolves to within one timeout.
async fn open(address: &str, timeout: Duration) -> Result<TcpStream, ClientError> {
    let deadline = Instant::now() + timeout;
    let timed_out = || ClientError::ConnectTimeout { address: address.to_owned(), timeout };
    let candidates = timeout_at(deadline, tokio::net::lookup_host(address))
        .await
        .map_err(|_| timed_out())?
        .map_err(|source| ClientError::Resolve { address: address.to_owned(), source })?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in candidates {
        match timeout_at(deadline, TcpStream::connect(candidate)).await {
            Ok(Ok(stream)) => {
                // Requests are small and waited for: Nagle's algorithm would add 40 ms to each.
                stream
                    .set_nodelay(true)
                    .map_err(|source| ClientError::Connect { address: address.to_owned(), source })?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_) => return Err(timed_out()),
        }
    }
    Err(ClientError::Connect { address: address.to_owned(), source: last })
}
