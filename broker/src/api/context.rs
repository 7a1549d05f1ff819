//! What a request handler knows of the request besides its body.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use protocol::StrBytes;
use protocol::frame::RequestHeader;

/// What a connection keeps between requests.
#[derive(Debug)]
pub struct ClientConnection {
    pub id: u64,
    pub peer: SocketAddr,
    /// Our end of the connection.
    pub local: SocketAddr,
    /// The listener it came in on: its endpoints are the ones the client is told.
    pub listener_name: Arc<str>,
    /// From the first ApiVersions request that carried it.
    pub software: OnceLock<ClientSoftware>,
}

#[derive(Clone, Debug)]
pub struct ClientSoftware {
    pub name: StrBytes,
    pub version: StrBytes,
}

impl ClientConnection {
    pub fn software_name(&self) -> &str {
        self.software.get().map_or("", |software| software.name.as_str())
    }
}

/// Handed to each handler.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub header: RequestHeader,
    pub connection: Arc<ClientConnection>,
}

impl RequestContext {
    pub fn version(&self) -> i16 {
        self.header.api_version
    }

    pub fn client_id(&self) -> &str {
        self.header.client_id.as_ref().map_or("", |id| id.as_str())
    }

    pub fn client_address(&self) -> SocketAddr {
        self.connection.peer
    }

    pub fn listener_name(&self) -> &str {
        &self.connection.listener_name
    }
}
