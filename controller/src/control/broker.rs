//! Brokers: register, heartbeat, fence and unfence, controlled shutdown.

use common::ids::*;
use common::metadata::record::{BrokerRegistration, Endpoint};
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::directories::directories_failed;
use super::heartbeat::Liveness;
use super::partition::{BrokerEvent, Sender, broker_changes, check_broker_epoch, leads_any};
use super::result::{ControllerResult, refuse};
use super::settings::ControlSettings;

/// A broker process introduces itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    pub broker_id: BrokerId,
    pub incarnation_id: IncarnationId,
    pub endpoints: Vec<Endpoint>,
    pub inter_broker_endpoint: u32,
    pub rack: Option<String>,
    pub directories: Vec<DirectoryId>,
    /// The epoch of the registration that ended with a clean shutdown (KIP-966).
    pub previous_broker_epoch: Option<BrokerEpoch>,
}

/// What the image has of a broker before it registers, and what soft state knows.
pub fn register(
    image: &MetadataImage,
    settings: &ControlSettings,
    request: &Registration,
    controllers: &[ControllerId],
    liveness: Liveness,
) -> Result<ControllerResult<BrokerEpoch>, ControlError> {
    let id = request.broker_id;
    if id.0 < 0 || request.inter_broker_endpoint as usize >= request.endpoints.len() {
        return refuse(ErrorCode::InvalidRegistration, "a broker id below 0, or no inter-broker endpoint");
    }
    if controllers.contains(&ControllerId(id.0)) {
        return refuse(ErrorCode::InvalidRegistration, format!("node.id {id} is that of a controller"));
    }
    if request.directories.iter().any(|directory| directory.is_zero()) {
        return refuse(ErrorCode::InvalidRegistration, "a log directory without an id");
    }
    let existing = image.brokers.get(&id);
    if let Some(broker) = existing {
        if broker.incarnation_id == request.incarnation_id {
            // The answer to its first attempt was lost.
            if same_process(broker, request) {
                return Ok(ControllerResult::unchanged(broker.broker_epoch));
            }
        } else if !broker.fenced && liveness == Liveness::Alive {
            return refuse(
                ErrorCode::DuplicateBrokerRegistration,
                format!(
                    "another process with node.id {id} is running (incarnation {})",
                    broker.incarnation_id
                ),
            );
        }
    }
    if let Some((other, directory)) = shared_directory(image, request) {
        return refuse(
            ErrorCode::InvalidRegistration,
            format!("log directory {directory} is registered by broker {other}"),
        );
    }
    // One that is not registered any more may come with any disk: it is eligible for nothing.
    let clean = existing.is_some_and(|broker| {
        broker.incarnation_id == request.incarnation_id
            || request.previous_broker_epoch == Some(broker.broker_epoch)
    });
    let event = if clean { BrokerEvent::Gone } else { BrokerEvent::CameBackUncleanly };
    let mut records = broker_changes(image, settings, id, event);
    records.insert(
        0,
        MetadataRecord::RegisterBroker {
            broker_id: id,
            incarnation_id: request.incarnation_id,
            endpoints: request.endpoints.clone(),
            rack: request.rack.clone(),
            directories: request.directories.clone(),
            inter_broker_endpoint: request.inter_broker_endpoint,
        },
    );
    Ok(ControllerResult::new(records, BrokerEpoch(image.offset.next().0)))
}

fn same_process(broker: &BrokerRegistration, request: &Registration) -> bool {
    broker.endpoints == request.endpoints
        && broker.inter_broker_endpoint == request.inter_broker_endpoint
        && broker.rack == request.rack
        && broker.directories == request.directories
}

fn shared_directory(image: &MetadataImage, request: &Registration) -> Option<(BrokerId, DirectoryId)> {
    image.brokers.iter().filter(|(id, _)| **id != request.broker_id).find_map(|(id, broker)| {
        let shared = request.directories.iter().find(|directory| broker.directories.contains(directory))?;
        Some((*id, *shared))
    })
}

/// What a heartbeat tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub sender: Sender,
    pub metadata_offset: MetadataOffset,
    pub want_fence: bool,
    pub want_shutdown: bool,
    /// That failed since the registration.
    pub offline_directories: Vec<DirectoryId>,
}

/// What it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    pub caught_up: bool,
    pub fenced: bool,
    pub should_shut_down: bool,
}

/// One heartbeat. The state follows: fenced, until caught up to its own registration; unfenced; in
/// controlled shutdown, until it leads nothing; fenced again, and told to stop.
pub fn heartbeat(
    image: &MetadataImage,
    settings: &ControlSettings,
    request: Heartbeat,
) -> Result<ControllerResult<HeartbeatAnswer>, ControlError> {
    check_broker_epoch(image, request.sender)?;
    let Sender { broker_id, broker_epoch } = request.sender;
    let Some(broker) = image.brokers.get(&broker_id) else {
        return refuse(ErrorCode::BrokerIdNotRegistered, format!("broker {broker_id} is not registered"));
    };
    let caught_up = request.metadata_offset.0 >= broker_epoch.0;
    let answer = |fenced, should_shut_down| HeartbeatAnswer { caught_up, fenced, should_shut_down };
    let failed = directories_failed(image, settings, broker_id, broker, &request.offline_directories);
    if !failed.is_empty() {
        // What else it wants comes with the next heartbeat again.
        return Ok(ControllerResult::new(failed, answer(broker.fenced, false)));
    }
    if request.want_shutdown {
        if broker.fenced {
            return Ok(ControllerResult::unchanged(answer(true, true)));
        }
        // The leaders move in one step; it is told to stop once that is committed and it leads nothing.
        let led = leads_any(image, broker_id);
        let mut records = Vec::new();
        if !broker.in_controlled_shutdown || !led {
            records.push(MetadataRecord::BrokerChange {
                broker_id,
                broker_epoch,
                fenced: (!led).then_some(true),
                in_controlled_shutdown: Some(true),
            });
        }
        records.extend(broker_changes(image, settings, broker_id, BrokerEvent::Gone));
        return Ok(ControllerResult::new(records, answer(!led, !led)));
    }
    if request.want_fence {
        let records = if broker.fenced { Vec::new() } else { fence(image, settings, broker_id) };
        return Ok(ControllerResult::new(records, answer(true, false)));
    }
    if broker.fenced && caught_up {
        let mut records = vec![MetadataRecord::BrokerChange {
            broker_id,
            broker_epoch,
            fenced: Some(false),
            in_controlled_shutdown: Some(false),
        }];
        records.extend(broker_changes(image, settings, broker_id, BrokerEvent::Unfenced));
        return Ok(ControllerResult::new(records, answer(false, false)));
    }
    Ok(ControllerResult::unchanged(answer(broker.fenced, false)))
}

/// A broker is taken out for good. One that runs would register again at once, so it has to be stopped
/// before; its replicas stay where they are until they are reassigned.
pub fn unregister(
    image: &MetadataImage,
    settings: &ControlSettings,
    broker_id: BrokerId,
) -> Result<ControllerResult<()>, ControlError> {
    let Some(broker) = image.brokers.get(&broker_id) else {
        return refuse(
            ErrorCode::BrokerIdNotRegistered,
            format!("Broker ID {broker_id} is not currently registered"),
        );
    };
    if !broker.fenced {
        let message = format!("broker {broker_id} is running: stop it before it is unregistered");
        return refuse(ErrorCode::InvalidRequest, message);
    }
    let mut records = broker_changes(image, settings, broker_id, BrokerEvent::Gone);
    records.push(MetadataRecord::UnregisterBroker { broker_id, broker_epoch: broker.broker_epoch });
    Ok(ControllerResult::new(records, ()))
}

/// The broker's session lapsed, or it asked for it.
pub fn fence(image: &MetadataImage, settings: &ControlSettings, broker_id: BrokerId) -> Vec<MetadataRecord> {
    let Some(broker) = image.brokers.get(&broker_id).filter(|broker| !broker.fenced) else {
        return Vec::new();
    };
    let mut records = vec![MetadataRecord::BrokerChange {
        broker_id,
        broker_epoch: broker.broker_epoch,
        fenced: Some(true),
        in_controlled_shutdown: None,
    }];
    records.extend(broker_changes(image, settings, broker_id, BrokerEvent::Gone));
    records
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
