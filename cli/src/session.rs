//! Requests of the command: tries every address, follows the active controller, gives up at a deadline.

use std::time::Duration;

use broker::client::{ClientError, ConnectOptions, Connection};
use protocol::error_code::ErrorCode;
use protocol::{Request, Response, StrBytes};
use tokio::time::{Instant, sleep};

use crate::command_config;
use crate::failure::Failure;
use crate::target::{Addresses, CommonArgs};

const CLIENT_ID: &str = "kagami";
const RETRY: Duration = Duration::from_millis(100);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub struct Session {
    addresses: Addresses,
    deadline: Instant,
    connection: Option<Connection>,
    next_address: usize,
}

impl Session {
    pub fn new(addresses: Addresses, common: &CommonArgs) -> Result<Session, Failure> {
        command_config::check(common.command_config.as_deref())?;
        let deadline = Instant::now() + common.timeout();
        Ok(Session { addresses, deadline, connection: None, next_address: 0 })
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
                    self.move_on();
                }
                Err(Attempt::Failed(reason)) => {
                    last = reason;
                    self.move_on();
                }
                Err(Attempt::Unsupported(reason)) => return Err(Failure::refused(reason)),
            }
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
