//! Requests of the command: tries every address, follows the active controller, gives up at a deadline.

use std::time::Duration;

use broker::client::{ClientError, ConnectOptions, Connection};
use common::config::HostPort;
use protocol::error_code::ErrorCode;
use protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};
use protocol::{Request, Response, StrBytes};
use tokio::time::{Instant, sleep};

use crate::command_config;
use crate::failure::Failure;
use crate::target::{Addresses, CommonArgs};

const CLIENT_ID: &str = "kagami";
const RETRY: Duration = Duration::from_millis(100);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Who waits longer is told for what.
const SILENCE: Duration = Duration::from_secs(3);
/// Of DescribeCluster.
const ENDPOINT_TYPE_CONTROLLER: i8 = 2;

pub struct Session {
    addresses: Addresses,
    begin: Instant,
    deadline: Instant,
    has_told: bool,
    connection: Option<Connection>,
    next_address: usize,
}

impl Session {
    pub fn new(addresses: Addresses, common: &CommonArgs) -> Result<Session, Failure> {
        command_config::check(common.command_config.as_deref())?;
        let begin = Instant::now();
        let deadline = begin + common.timeout();
        Ok(Session { addresses, begin, deadline, has_told: false, connection: None, next_address: 0 })
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    pub fn are_controllers(&self) -> bool {
        self.addresses.are_controllers
    }

    /// Asks until something answers that is not "another controller is active". `error_of` tells the
    /// answer's error code.
    pub async fn call(
        &mut self,
        request: Request,
        error_of: impl Fn(&Response) -> i16,
    ) -> Result<Response, Failure> {
        let mut last = String::from("nothing answered");
        while Instant::now() < self.deadline {
            match self.try_call(request.clone()).await {
                Ok(response) => {
                    let code = error_of(&response);
                    if !is_elsewhere(code) {
                        return Ok(response);
                    }
                    last = Failure::code("last answer", code, None).to_string();
                    self.look_elsewhere().await;
                }
                Err(Attempt::Failed(reason)) => {
                    last = reason;
                    self.move_on();
                }
                Err(Attempt::Unsupported(reason)) => return Err(Failure::refused(reason)),
            }
            self.tell(&last);
            sleep(RETRY).await;
        }
        Err(Failure::timed_out(format!("{} ({last})", self.addresses.addresses.join(","))))
    }

    /// A change of the cluster's metadata. Without an active controller a broker gives up after a few seconds;
    /// the command goes on for as long as it was given. `outcome` tells the answer's error.
    pub async fn change(
        &mut self,
        what: &str,
        request: Request,
        outcome: impl Fn(&Response) -> (i16, Option<StrBytes>),
    ) -> Result<Response, Failure> {
        let mut last = None;
        loop {
            let response = match self.call(request.clone(), |response| outcome(response).0).await {
                // What a broker said of it tells more than that there was no time left.
                Err(Failure::TimedOut(message)) => {
                    return Err(Failure::timed_out(last.unwrap_or(message)));
                }
                answered => answered?,
            };
            let (code, message) = outcome(&response);
            if code != ErrorCode::RequestTimedOut.code() {
                return Ok(response);
            }
            last = Some(Failure::code(what, code, message.as_deref()).to_string());
            self.move_on();
            sleep(RETRY).await;
        }
    }

    /// Says once what a command waits for that does not end by itself.
    pub fn tell(&mut self, reason: &str) {
        if !self.has_told && self.begin.elapsed() >= SILENCE {
            self.has_told = true;
            let seconds = self.deadline.saturating_duration_since(Instant::now()).as_secs();
            eprintln!("kagami: {reason}; trying for {seconds} seconds more");
        }
    }

    /// The active controller need not be one of those that the command was given: the one that has answered
    /// knows them all. Brokers send on what they are asked.
    async fn look_elsewhere(&mut self) {
        if self.are_controllers() {
            let request = DescribeClusterRequest::default().with_endpoint_type(ENDPOINT_TYPE_CONTROLLER);
            if let Ok(Response::DescribeCluster(response)) = self.try_call(request.into()).await
                && let Some(active) = learn(&mut self.addresses.addresses, &response)
            {
                self.connection = None;
                self.next_address = active;
                return;
            }
        }
        self.move_on();
    }

    fn move_on(&mut self) {
        self.connection = None;
        self.next_address = (self.next_address + 1) % self.addresses.addresses.len();
    }

    async fn try_call(&mut self, request: Request) -> Result<Response, Attempt> {
        if self.connection.as_ref().is_none_or(|connection| !connection.is_usable()) {
            let address = &self.addresses.addresses[self.next_address];
            self.connection = Some(connect(address, self.deadline).await.map_err(Attempt::of)?);
        }
        let Some(connection) = self.connection.as_mut() else {
            return Err(Attempt::Failed("not connected".to_owned()));
        };
        connection.call_latest(request).await.map_err(Attempt::of)
    }

    /// One request to one node named by address, outside the session's own connection.
    pub async fn call_at(&self, address: &str, request: Request) -> Result<Response, Failure> {
        let mut connection = connect(address, self.deadline)
            .await
            .map_err(|error| Failure::refused(format!("{address}: {error}")))?;
        connection.call_latest(request).await.map_err(|error| Failure::refused(format!("{address}: {error}")))
    }
}

/// Adds the controllers of an answer; where the active one is among all, if there is one.
fn learn(addresses: &mut Vec<String>, response: &DescribeClusterResponse) -> Option<usize> {
    let mut active = None;
    for controller in &response.brokers {
        let Ok(port) = u16::try_from(controller.port) else { continue };
        let address = HostPort::new(controller.host.to_string(), port).to_string();
        let known = addresses.iter().position(|known| *known == address);
        let index = known.unwrap_or(addresses.len());
        if known.is_none() {
            addresses.push(address);
        }
        if controller.broker_id == response.controller_id {
            active = Some(index);
        }
    }
    active
}

enum Attempt {
    Failed(String),
    Unsupported(String),
}

impl Attempt {
    fn of(error: ClientError) -> Attempt {
        match error {
            ClientError::UnsupportedApi { .. } => Attempt::Unsupported(error.to_string()),
            other => Attempt::Failed(other.to_string()),
        }
    }
}

async fn connect(address: &str, deadline: Instant) -> Result<Connection, ClientError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let options = ConnectOptions {
        connect_timeout: CONNECT_TIMEOUT.min(left.max(RETRY)),
        request_timeout: left.max(RETRY),
        ..ConnectOptions::default()
    };
    Connection::connect(address, CLIENT_ID, options).await
}

/// The node asked is not the active controller, or knows none at the moment.
fn is_elsewhere(code: i16) -> bool {
    code == ErrorCode::NotController.code()
        || code == ErrorCode::NotLeaderOrFollower.code()
        || code == ErrorCode::CoordinatorLoadInProgress.code()
        || code == ErrorCode::CoordinatorNotAvailable.code()
}

#[cfg(test)]
mod tests {
    use protocol::StrBytes;
    use protocol::messages::BrokerId;
    use protocol::messages::describe_cluster_response::DescribeClusterBroker;

    use super::*;

    #[test]
    fn controllers_are_learned_and_the_active_one_is_next() {
        let controller = |id, host: &str, port| {
            DescribeClusterBroker::default()
                .with_broker_id(BrokerId(id))
                .with_host(StrBytes::from_string(host.to_owned()))
                .with_port(port)
        };
        let brokers = vec![controller(101, "a", 1), controller(104, "::1", 4), controller(9, "x", -1)];
        let response = DescribeClusterResponse::default().with_brokers(brokers);
        let mut addresses = vec!["b:2".to_owned(), "a:1".to_owned()];
        for (active, expected) in [(104, Some(2)), (101, Some(1)), (9, None), (-1, None)] {
            let response = response.clone().with_controller_id(BrokerId(active));
            assert_eq!(learn(&mut addresses, &response), expected, "controller {active}");
            assert_eq!(addresses, ["b:2", "a:1", "[::1]:4"]);
        }
    }
}
