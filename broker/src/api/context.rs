//! What a request handler knows of the request besides its body.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use common::network::ConnectionInfo;
use protocol::StrBytes;
use protocol::frame::RequestHeader;

/// What a connection keeps between requests.
#[derive(Debug)]
pub struct ClientConnection {
    pub info: ConnectionInfo,
    /// From the first ApiVersions request that carried it.
    pub software: OnceLock<ClientSoftware>,
}

#[derive(Clone, Debug)]
pub struct ClientSoftware {
    pub name: StrBytes,
    pub version: StrBytes,
}

impl ClientConnection {
    pub fn new(info: ConnectionInfo) -> ClientConnection {
        ClientConnection { info, software: OnceLock::new() }
    }

    pub fn software_name(&self) -> Option<&str> {
        self.software.get().map(|software| software.name.as_str())
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
        self.header.client_id.as_deref().unwrap_or("")
    }

    pub fn client_address(&self) -> SocketAddr {
        self.connection.info.peer
    }

    /// The listener it came in on: its endpoints are the ones the client is told.
    pub fn listener_name(&self) -> &str {
        &self.connection.info.listener_name
    }
}
