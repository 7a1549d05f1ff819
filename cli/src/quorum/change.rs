//! Changes of the quorum's members, and of the brokers'.

use std::time::Duration;

use common::ids::DirectoryId;
use protocol::error_code::ErrorCode;
use protocol::messages::describe_quorum_response::ReplicaState;
use protocol::messages::{AddRaftVoterRequest, BrokerId, RemoveRaftVoterRequest, UnregisterBrokerRequest};
use protocol::quorum::TransferQuorumLeaderRequest;
use protocol::{Request, Response};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{Controller, describe};
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::target::AnyTarget;

const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Of one request to add a voter; a broker that sends it on waits little longer. It is repeated.
const ADD_PATIENCE_MS: i32 = 8_000;

impl Controller {
    fn directory_id(&self) -> Result<Option<Uuid>, Failure> {
        let Some(text) = &self.directory_id else { return Ok(None) };
        let id = DirectoryId::parse(text).filter(|id| !id.is_zero());
        let id = id.ok_or_else(|| Failure::usage(format!("--directory-id {text} is no directory id")))?;
        Ok(Some(id.0))
    }
}

pub async fn add(controller: Controller, target: AnyTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let directory_id = match controller.directory_id()? {
        Some(id) => id,
        None => observer(&mut session, controller.node_id).await?,
    };
    let what = format!("controller {} added", controller.node_id);
    let mut waited = false;
    loop {
        let request = AddRaftVoterRequest::default()
            .with_cluster_id(None)
            .with_timeout_ms(left_ms(&session).min(ADD_PATIENCE_MS))
            .with_voter_id(controller.node_id)
            .with_voter_directory_id(directory_id);
        let response = session.call(request.into(), |response| outcome(response).0).await?;
        match outcome(&response) {
            (code, Some(reason))
                if code == ErrorCode::RequestTimedOut.code()
                    && Instant::now() + LOOK_AGAIN < session.deadline() =>
            {
                session.tell(&reason);
                waited = true;
                sleep(LOOK_AGAIN).await;
            }
            // The request before this one was carried out after all.
            (code, _) if waited && code == ErrorCode::DuplicateVoter.code() => {
                return tell_done(&target, &what);
            }
            (code, message) => return conclude(&target, "AddRaftVoter", (code, message), &what),
        }
    }
}

/// The directory of the observer with this node id, as soon as it has announced itself.
async fn observer(session: &mut Session, node_id: i32) -> Result<Uuid, Failure> {
    loop {
        let quorum = describe::ask(session).await?;
        let of_node = |replica: &&ReplicaState| replica.replica_id.0 == node_id;
        if let Some(found) = quorum.observers.iter().find(of_node) {
            return Ok(found.replica_directory_id);
        }
        if let Some(voter) = quorum.current_voters.iter().find(of_node) {
            let directory = DirectoryId(voter.replica_directory_id);
            // A wiped one is a voter by its old directory until the new one shows up.
            let message = format!("controller {node_id} is a voter already, with directory {directory}");
            if Instant::now() + LOOK_AGAIN >= session.deadline() {
                return Err(Failure::refused(message));
            }
            session.tell(&format!("{message}, and none with another one observes"));
        }
        let message = format!(
            "controller {node_id} does not observe the quorum: start it, with the address of a voter in its \
             controller.quorum.voters"
        );
        if Instant::now() + LOOK_AGAIN >= session.deadline() {
            return Err(Failure::timed_out(message));
        }
        session.tell(&message);
        sleep(LOOK_AGAIN).await;
    }
}

pub async fn remove(controller: Controller, target: AnyTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let directory_id = match controller.directory_id()? {
        Some(id) => id,
        None => {
            let quorum = describe::ask(&mut session).await?;
            let voter = quorum.current_voters.iter().find(|voter| voter.replica_id.0 == controller.node_id);
            let voter = voter.ok_or_else(|| {
                Failure::refused(format!("controller {} is not a voter", controller.node_id))
            })?;
            voter.replica_directory_id
        }
    };
    let request = RemoveRaftVoterRequest::default()
        .with_cluster_id(None)
        .with_voter_id(controller.node_id)
        .with_voter_directory_id(directory_id);
    let what = format!("controller {} removed", controller.node_id);
    change(&mut session, &target, request.into(), what).await
}

pub async fn transfer(node_id: i32, target: AnyTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let timeout_ms = left_ms(&session);
    let request = TransferQuorumLeaderRequest { node_id, timeout_ms };
    change(&mut session, &target, request.into(), format!("controller {node_id} leads")).await
}

pub async fn unregister(node_id: i32, target: AnyTarget) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let request = UnregisterBrokerRequest::default().with_broker_id(BrokerId(node_id));
    change(&mut session, &target, request.into(), format!("broker {node_id} unregistered")).await
}

async fn change(
    session: &mut Session,
    target: &AnyTarget,
    request: Request,
    done: String,
) -> Result<(), Failure> {
    let name = request.key().name();
    let response = session.call(request, |response| outcome(response).0).await?;
    conclude(target, name, outcome(&response), &done)
}

fn conclude(
    target: &AnyTarget,
    name: &str,
    (code, message): (i16, Option<String>),
    done: &str,
) -> Result<(), Failure> {
    if code == ErrorCode::RequestTimedOut.code() {
        return Err(Failure::timed_out(message.unwrap_or_else(|| name.to_owned())));
    }
    if code != 0 {
        return Err(Failure::code(name, code, message.as_deref()));
    }
    tell_done(target, done)
}

fn tell_done(target: &AnyTarget, done: &str) -> Result<(), Failure> {
    if target.common.json {
        return output::print_json(&json!({ "done": done }));
    }
    println!("{done}");
    Ok(())
}

fn outcome(response: &Response) -> (i16, Option<String>) {
    let (code, message) = match response {
        Response::AddRaftVoter(response) => (response.error_code, &response.error_message),
        Response::RemoveRaftVoter(response) => (response.error_code, &response.error_message),
        Response::TransferQuorumLeader(response) => (response.error_code, &response.error_message),
        Response::UnregisterBroker(response) => (response.error_code, &response.error_message),
        _ => return (ErrorCode::UnknownServerError.code(), None),
    };
    (code, message.as_ref().map(ToString::to_string))
}

fn left_ms(session: &Session) -> i32 {
    let left = session.deadline().saturating_duration_since(Instant::now());
    i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)
}
