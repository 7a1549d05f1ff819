//! Voters with a listener that notes what it sees, each served on a loopback port of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use raft_log::{AppendError, Leadership, Listener, MembershipError, RaftLog, RaftLogConfig, VoterId};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use uuid::Uuid;

pub const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
pub const PATIENCE: Duration = Duration::from_secs(10);

/// State that is the list of all payloads, so that two listeners are equal only if they saw the same.
#[derive(Default)]
pub struct Recorder {
    pub seen: Mutex<Vec<Vec<u8>>>,
    last: Mutex<u64>,
    pub loads: Mutex<usize>,
}

impl Recorder {
    pub fn seen(&self) -> Vec<Vec<u8>> {
        self.seen.lock().unwrap().clone()
    }
}

impl Listener for Recorder {
    fn commit(&self, index: u64, _term: u64, payload: Bytes) {
        let mut last = self.last.lock().unwrap();
        assert!(index > *last, "{index} after {last}");
        *last = index;
        self.seen.lock().unwrap().push(payload.to_vec());
    }

    fn load_snapshot(&self, index: u64, _term: u64, mut data: &[u8]) -> Result<(), String> {
        let mut seen = Vec::new();
        while let Some((length, rest)) = data.split_first_chunk::<4>() {
            let (payload, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            seen.push(payload.to_vec());
            data = rest;
        }
        *self.last.lock().unwrap() = index;
        *self.seen.lock().unwrap() = seen;
        *self.loads.lock().unwrap() += 1;
        Ok(())
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut data = Vec::new();
        for payload in self.seen.lock().unwrap().iter() {
            data.extend_from_slice(&(payload.len() as u32).to_be_bytes());
            data.extend_from_slice(payload);
        }
        data
    }

    fn leader_change(&self, _leadership: Leadership) {}
}

pub struct Voter {
    pub log: RaftLog,
    pub recorder: Arc<Recorder>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Voter {
    pub async fn start(config: RaftLogConfig, address: SocketAddr) -> Voter {
        // Shown with the output of a test that fails.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        drop(tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init());
        let recorder = Arc::new(Recorder::default());
        let log = RaftLog::open(config, recorder.clone()).await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let incoming = TcpIncoming::from(socket.listen(64).unwrap()).with_nodelay(Some(true));
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder().add_service(log.service());
        let server = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            server.serve_with_incoming_shutdown(incoming, stopped).await.unwrap();
        });
        Voter { log, recorder, stop: Some(stop), server }
    }

    pub async fn stop(mut self) -> Arc<Recorder> {
        self.log.shutdown().await;
        drop(self.stop.take());
        // It drains: that no call is left hanging is part of the test.
        tokio::time::timeout(PATIENCE, &mut self.server).await.unwrap().unwrap();
        self.recorder
    }
}

pub struct Quorum {
    pub directories: Vec<TempDir>,
    pub addresses: Vec<SocketAddr>,
    pub ids: Vec<Uuid>,
    pub voters: Vec<Option<Voter>>,
    pub snapshot_every_entries: u64,
    /// How many of them `controller.quorum.voters` lists; the others observe.
    pub listed: usize,
}

impl Quorum {
    /// A quorum of `count`, none started.
    pub fn new(count: usize) -> Quorum {
        // Held together, so that no two get the same port.
        let probes: Vec<_> =
            (0..count).map(|_| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        Quorum {
            directories: (0..count).map(|_| tempfile::tempdir().unwrap()).collect(),
            addresses: probes.iter().map(|probe| probe.local_addr().unwrap()).collect(),
            ids: (0..count).map(|_| Uuid::new_v4()).collect(),
            voters: (0..count).map(|_| None).collect(),
            snapshot_every_entries: 10_000,
            listed: count,
        }
    }

    pub async fn started(count: usize) -> Quorum {
        let mut quorum = Quorum::new(count);
        quorum.start_all().await;
        quorum
    }

    pub fn config(&self, number: usize) -> RaftLogConfig {
        self.config_in(number, self.directories[number].path())
    }

    pub fn config_in(&self, number: usize, directory: &Path) -> RaftLogConfig {
        let voter = VoterId { node_id: number as u64 + 1, directory_id: self.ids[number] };
        let mut config = RaftLogConfig::new(voter, CLUSTER, directory);
        let listed = self.addresses.iter().take(self.listed);
        config.voters = (1..).zip(listed).map(|(node_id, address)| (node_id, address.to_string())).collect();
        config.address = Some(self.addresses[number].to_string());
        config.snapshot_every_entries = self.snapshot_every_entries;
        config
    }

    pub async fn start(&mut self, number: usize) {
        let voter = Voter::start(self.config(number), self.addresses[number]).await;
        self.voters[number] = Some(voter);
    }

    /// Its disk is gone: the next start is with an empty one under a new id.
    pub fn wipe(&mut self, number: usize) {
        assert!(self.voters[number].is_none());
        self.directories[number] = tempfile::tempdir().unwrap();
        self.ids[number] = Uuid::new_v4();
    }

    pub fn id(&self, number: usize) -> VoterId {
        VoterId { node_id: number as u64 + 1, directory_id: self.ids[number] }
    }

    /// Changes the voters through whoever leads.
    pub async fn add(&self, number: usize) -> Result<(), MembershipError> {
        let (leader, _) = self.leader().await;
        self.voter(leader).log.add_voter(self.id(number), PATIENCE).await
    }

    pub async fn remove(&self, voter: VoterId) -> Result<(), MembershipError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (leader, _) = self.leader().await;
            match self.voter(leader).log.remove_voter(voter, PATIENCE).await {
                Err(MembershipError::HandedOver(_) | MembershipError::NotLeader)
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Node ids of the voters, as the leader has them.
    pub async fn voter_ids(&self) -> Vec<u64> {
        let (leader, _) = self.leader().await;
        self.voter(leader).log.status().voters.iter().map(|voter| voter.voter.node_id).collect()
    }

    pub async fn start_all(&mut self) {
        for number in 0..self.voters.len() {
            self.start(number).await;
        }
    }

    pub async fn stop(&mut self, number: usize) -> Arc<Recorder> {
        self.voters[number].take().unwrap().stop().await
    }

    pub async fn stop_all(&mut self) {
        join_all(self.voters.iter_mut().filter_map(Option::take).map(Voter::stop)).await;
    }

    pub fn running(&self) -> impl Iterator<Item = &Voter> {
        self.voters.iter().flatten()
    }

    pub fn voter(&self, number: usize) -> &Voter {
        self.voters[number].as_ref().unwrap()
    }

    /// The voter that leads and is ready, with its term.
    pub async fn leader(&self) -> (usize, u64) {
        eventually("a leader that is ready", || {
            self.voters.iter().enumerate().find_map(|(number, voter)| {
                let leadership = *voter.as_ref()?.log.leadership().borrow();
                leadership.ready.then_some((number, leadership.term))
            })
        })
        .await
    }

    /// Appends whatever happens, each payload until it is acknowledged.
    pub async fn append_all(&self, payloads: impl IntoIterator<Item = String>) {
        for payload in payloads {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let (number, term) = self.leader().await;
                match self.voter(number).log.append(term, payload.clone().into()).await {
                    Ok(_) => break,
                    Err(AppendError::NotLeader { .. } | AppendError::TermChanged)
                        if Instant::now() < deadline =>
                    {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// All running voters have seen exactly these.
    pub async fn all_saw(&self, expected: &[String]) {
        let expected: Vec<Vec<u8>> = expected.iter().map(|payload| payload.clone().into_bytes()).collect();
        for voter in self.running() {
            eventually("all listeners caught up", || {
                (voter.recorder.seen().len() >= expected.len()).then_some(())
            })
            .await;
            assert!(voter.recorder.seen() == expected, "{} saw something else", voter.log.voter());
        }
    }
}

pub fn payloads(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// Looks again until there is something.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
