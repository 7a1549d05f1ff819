//! Connections to the source: opened when needed, kept for the next question, and each one proven to
//! lead to the cluster it is meant for before anything else is said (decision 19).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use common::ids::*;
use parking_lot::Mutex;
use protocol::api::ApiKey;
use protocol::{Request, Response};

use crate::mirror::deps::{ConnectSettings, SourceConnection, SourceConnector};
use crate::mirror::state::{FailureKind, FailureReason, SourceFailure};

use super::metadata::{self, SourceMetadata};
use super::settings::SourceSettings;

/// Answers of the metadata connections: topics and offsets, never records.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Whatever `request.timeout.ms` allows, a question that blocks others is given up earlier.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Who we are and whom we expect to find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceIdentity {
    pub own_cluster_id: String,
    /// From the image; `None` before the first contact was recorded.
    pub source_cluster_id: Option<String>,
}

impl SourceIdentity {
    pub fn check(&self, found: Option<&str>) -> Result<(), SourceFailure> {
        let Some(found) = found else {
            return Err(SourceFailure::CouldNotAsk("it does not tell its cluster id".to_owned()));
        };
        if found == self.own_cluster_id {
            let detail = format!("{found}; check bootstrap.servers");
            return Err(SourceFailure::Failed(FailureReason::new(FailureKind::OwnCluster, detail)));
        }
        match &self.source_cluster_id {
            Some(expected) if expected != found => {
                let detail = format!("{found}, at first contact it was {expected}");
                Err(SourceFailure::Failed(FailureReason::new(FailureKind::OtherSourceCluster, detail)))
            }
            _ => Ok(()),
        }
    }
}

/// The source of one mirror, as one broker sees it. Nothing is shared with another mirror: each has
/// its own credentials.
pub struct SourceClient {
    pub mirror: Arc<str>,
    client_id: String,
    connector: Arc<dyn SourceConnector>,
    settings: ArcSwap<SourceSettings>,
    identity: ArcSwap<SourceIdentity>,
    /// One idle connection per address.
    idle: Mutex<HashMap<String, Box<dyn SourceConnection>>>,
    /// The address that answered last, tried first.
    preferred: Mutex<Option<String>>,
    /// Why the controller did not take this source at first contact; told once, then tried again.
    refusal: Mutex<Option<FailureReason>>,
}

/// A connection whose cluster was checked, and what its Metadata answer told by the way.
pub struct Checked {
    pub connection: Box<dyn SourceConnection>,
    pub cluster_id: String,
}

impl SourceClient {
    pub fn new(
        mirror: Arc<str>,
        broker: BrokerId,
        connector: Arc<dyn SourceConnector>,
        settings: SourceSettings,
        identity: SourceIdentity,
    ) -> SourceClient {
        SourceClient {
            client_id: format!("broker-{broker}-mirror-metadata-manager-{mirror}"),
            mirror,
            connector,
            settings: ArcSwap::from_pointee(settings),
            identity: ArcSwap::from_pointee(identity),
            idle: Mutex::new(HashMap::new()),
            preferred: Mutex::new(None),
            refusal: Mutex::new(None),
        }
    }

    pub fn settings(&self) -> Arc<SourceSettings> {
        self.settings.load_full()
    }

    pub fn identity(&self) -> Arc<SourceIdentity> {
        self.identity.load_full()
    }

    /// A changed configuration or identity: connections of the old one are closed.
    pub fn reconfigure(&self, settings: SourceSettings, identity: SourceIdentity) {
        if *self.settings.load_full() == settings && *self.identity.load_full() == identity {
            return;
        }
        self.settings.store(Arc::new(settings));
        self.identity.store(Arc::new(identity));
        self.idle.lock().clear();
        *self.preferred.lock() = None;
    }

    pub fn refuse(&self, reason: FailureReason) {
        *self.refusal.lock() = Some(reason);
    }

    pub fn take_refusal(&self) -> Option<FailureReason> {
        self.refusal.lock().take()
    }

    /// Opens a connection and checks where it leads. For fetchers and verifiers; questions use `call`.
    pub async fn open(
        &self,
        address: &str,
        client_id: &str,
        max_response_bytes: usize,
    ) -> Result<Checked, SourceFailure> {
        let settings = self.settings.load_full();
        let request_timeout = settings.request_timeout;
        let connect_timeout = settings.connect_timeout.min(QUESTION_TIMEOUT);
        let options = ConnectSettings { connect_timeout, request_timeout, max_response_bytes };
        let connecting = self.connector.connect(address, client_id, options);
        let mut connection = connecting.await.map_err(|error| SourceFailure::CouldNotAsk(error.0))?;
        let metadata =
            ask_metadata(&mut *connection, Some(&[]), QUESTION_TIMEOUT.min(request_timeout)).await?;
        self.identity.load().check(metadata.cluster_id.as_deref())?;
        let cluster_id = metadata.cluster_id.unwrap_or_default();
        Ok(Checked { connection, cluster_id })
    }

    async fn take(&self, address: &str) -> Result<(Box<dyn SourceConnection>, bool), SourceFailure> {
        let idle = self.idle.lock().remove(address);
        if let Some(connection) = idle {
            return Ok((connection, true));
        }
        Ok((self.open(address, &self.client_id, MAX_ANSWER_BYTES).await?.connection, false))
    }

    /// Asks one node. A connection that idled may have been closed meanwhile: then once more on a new
    /// one. All questions asked this way may be repeated.
    pub async fn call_at(&self, address: &str, request: Request) -> Result<(Response, i16), SourceFailure> {
        loop {
            let (mut connection, idled) = self.take(address).await?;
            let key = request.key();
            let Some(version) = connection.version_of(key) else {
                self.idle.lock().insert(address.to_owned(), connection);
                return Err(SourceFailure::CouldNotAsk(format!("{address} does not serve {}", key.name())));
            };
            let timeout = QUESTION_TIMEOUT.min(self.settings.load().request_timeout);
            match connection.call(request.clone(), version, timeout).await {
                Ok(response) => {
                    self.idle.lock().insert(address.to_owned(), connection);
                    return Ok((response, version));
                }
                Err(_) if idled => continue,
                Err(error) => return Err(SourceFailure::CouldNotAsk(error.0)),
            }
        }
    }

    /// Asks any node: the one that answered last, then the configured ones.
    pub async fn call(&self, request: Request) -> Result<(Response, i16), SourceFailure> {
        let mut addresses: Vec<String> = self.preferred.lock().clone().into_iter().collect();
        for address in &self.settings.load().bootstrap_servers {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        let mut last = SourceFailure::CouldNotAsk("bootstrap.servers names nobody".to_owned());
        for address in addresses {
            match self.call_at(&address, request.clone()).await {
                Ok(answer) => {
                    *self.preferred.lock() = Some(address);
                    return Ok(answer);
                }
                // Another cluster, or our own, is told; the other addresses would hide it.
                Err(failed @ SourceFailure::Failed(_)) => return Err(failed),
                Err(could_not_ask) => last = could_not_ask,
            }
        }
        *self.preferred.lock() = None;
        Err(last)
    }

    /// Whether the node that answers serves an API; asked before questions plain Kafka does not know.
    pub async fn serves(&self, key: ApiKey) -> Result<bool, SourceFailure> {
        if let Some(serves) = self.idle_serves(key) {
            return Ok(serves);
        }
        // Any cheap question leaves a checked connection behind.
        self.call(Request::Metadata(metadata::request(Some(&[])))).await?;
        self.idle_serves(key).ok_or_else(|| SourceFailure::CouldNotAsk("its connection is in use".to_owned()))
    }

    fn idle_serves(&self, key: ApiKey) -> Option<bool> {
        let preferred = self.preferred.lock().clone()?;
        self.idle.lock().get(&preferred).map(|connection| connection.version_of(key).is_some())
    }

    pub async fn metadata(&self, topics: Option<&[Arc<str>]>) -> Result<SourceMetadata, SourceFailure> {
        let (response, version) = self.call(Request::Metadata(metadata::request(topics))).await?;
        match response {
            Response::Metadata(response) if response.error_code == 0 => {
                let found = metadata::parse(&response, version);
                self.identity.load().check(found.cluster_id.as_deref())?;
                Ok(found)
            }
            Response::Metadata(response) => {
                Err(SourceFailure::CouldNotAsk(format!("its metadata: error {}", response.error_code)))
            }
            _ => Err(unexpected("Metadata")),
        }
    }
}

async fn ask_metadata(
    connection: &mut dyn SourceConnection,
    topics: Option<&[Arc<str>]>,
    timeout: Duration,
) -> Result<SourceMetadata, SourceFailure> {
    let version = connection
        .version_of(ApiKey::Metadata)
        .ok_or_else(|| SourceFailure::CouldNotAsk("no common version of Metadata".to_owned()))?;
    let request = Request::Metadata(metadata::request(topics));
    match connection.call(request, version, timeout).await {
        Ok(Response::Metadata(response)) => Ok(metadata::parse(&response, version)),
        Ok(_) => Err(unexpected("Metadata")),
        Err(error) => Err(SourceFailure::CouldNotAsk(error.0)),
    }
}

/// A well-formed answer of the wrong kind.
pub fn unexpected(api: &str) -> SourceFailure {
    SourceFailure::CouldNotAsk(format!("it answered {api} with another API's response"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interleaving 20: the name is re-pointed to another cluster under a running mirror.
    #[test]
    fn counterexample_20_another_cluster_is_refused() {
        let identity =
            SourceIdentity { own_cluster_id: "b".to_owned(), source_cluster_id: Some("a".to_owned()) };
        assert_eq!(identity.check(Some("a")), Ok(()));
        let kind = |found| match identity.check(Some(found)) {
            Err(SourceFailure::Failed(reason)) => reason.kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind("c"), FailureKind::OtherSourceCluster);
        assert_eq!(kind("b"), FailureKind::OwnCluster);
        assert!(matches!(identity.check(None), Err(SourceFailure::CouldNotAsk(_))));
        let before = SourceIdentity { source_cluster_id: None, ..identity };
        assert_eq!(before.check(Some("c")), Ok(()));
    }
}
