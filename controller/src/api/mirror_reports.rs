//! ReportMirror: what partition leaders observe, as soft state for List and Describe (decision 21).
//!
//! It is never read as a fact: what was not reported to this controller is shown as such, never taken
//! for UNKNOWN, and no decision rests on it.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use common::metadata::MetadataImage;
use common::mirror_state::MirrorState;
use parking_lot::Mutex;
use protocol::error_code::ErrorCode;
use protocol::proto::controller as wire;
use tonic::Status;

use super::{ApiContext, sender, topic_id};
use crate::control::partition::check_broker_epoch;

/// What a leader last said of a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorReport {
    pub broker_id: BrokerId,
    pub leader_epoch: LeaderEpoch,
    pub association: Association,
    pub state: MirrorState,
    pub source_offset: i64,
    pub destination_offset: i64,
    pub reason: String,
    pub since_ms: i64,
    pub attempt: i32,
    pub next_retry_ms: i64,
    /// The leader takes clients' writes.
    pub writable: bool,
}

/// The newest report of each partition that exists.
#[derive(Default)]
pub struct MirrorReports {
    /// The quorum term the reports were made to; those of an earlier activity are old.
    reports: Mutex<(u64, HashMap<TopicIdPartition, Arc<MirrorReport>>)>,
}

impl MirrorReports {
    /// What is known of a partition under its newest association.
    pub fn of(&self, term: u64, id: TopicIdPartition, association: Association) -> Option<Arc<MirrorReport>> {
        let reports = self.reports.lock();
        if reports.0 != term {
            return None;
        }
        reports.1.get(&id).filter(|report| report.association == association).cloned()
    }

    /// Takes a report; one of a deposed leader or of an earlier association changes nothing.
    pub fn take(&self, term: u64, image: &MetadataImage, id: TopicIdPartition, report: MirrorReport) {
        let Some(topic) = image.topic_by_id(id.topic_id) else { return };
        let Some(partition) = image.partition(id) else { return };
        let registration = &partition.registration;
        let current = topic.mirror.as_ref().is_some_and(|mirror| mirror.association == report.association)
            && registration.leader == Some(report.broker_id);
        if !current || report.leader_epoch > registration.leader_epoch {
            // A report from the future comes again; one from the past is of no use.
            return;
        }
        let mut reports = self.reports.lock();
        if reports.0 != term {
            *reports = (term, HashMap::new());
        }
        let newer = reports.1.get(&id).is_none_or(|known| {
            (known.association, known.leader_epoch) <= (report.association, report.leader_epoch)
        });
        if newer {
            reports.1.insert(id, Arc::new(report));
        }
    }

    /// Forgets partitions that are gone.
    pub fn retain_existing(&self, image: &MetadataImage) {
        self.reports.lock().1.retain(|id, _| image.partition(*id).is_some());
    }
}

pub fn report_mirror(
    context: &ApiContext,
    request: wire::ReportMirrorRequest,
) -> Result<wire::ReportMirrorResponse, Status> {
    context.check_active()?;
    let image = context.image();
    let sender = sender(request.broker_id, request.broker_epoch);
    if let Err(error) = check_broker_epoch(&image, sender) {
        if error.code == ErrorCode::NotController {
            return Err(context.inactive());
        }
        return Ok(wire::ReportMirrorResponse { error_code: i32::from(error.code.code()) });
    }
    let term = context.controller.status().borrow().term;
    for partition in request.partitions {
        let state = i8::try_from(partition.state).ok().and_then(MirrorState::from_code);
        let state = state.ok_or_else(|| Status::invalid_argument("an unknown mirror state"))?;
        let id = TopicIdPartition::new(topic_id(&partition.topic_id)?, partition.partition);
        let report = MirrorReport {
            broker_id: sender.broker_id,
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            association: Association(partition.association),
            state,
            source_offset: partition.source_offset,
            destination_offset: partition.destination_offset,
            reason: partition.reason,
            since_ms: partition.since_ms,
            attempt: partition.attempt,
            next_retry_ms: partition.next_retry_ms,
            writable: partition.writable,
        };
        context.reports.take(term, &image, id, report);
    }
    Ok(wire::ReportMirrorResponse { error_code: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::topic_id;
    use crate::control::testing::*;

    #[test]
    fn only_the_current_leader_and_association_count() {
        let mut image = with_brokers(&[1, 2]);
        add_mirror(&mut image, "m", None);
        add_topic(&mut image, "t", topic_id(1), vec![registration(&[1, 2], &[1, 2], Some(1))]);
        let association = set_mirror_name(&mut image, "t", "m");
        let id = TopicIdPartition::new(topic_id(1), 0);
        let report = MirrorReport {
            broker_id: BrokerId(1),
            leader_epoch: LeaderEpoch(5),
            association,
            state: MirrorState::Mirroring,
            source_offset: 10,
            destination_offset: 9,
            reason: String::new(),
            since_ms: -1,
            attempt: 0,
            next_retry_ms: -1,
            writable: false,
        };
        let reports = MirrorReports::default();
        reports.take(1, &image, id, MirrorReport { broker_id: BrokerId(2), ..report.clone() });
        reports.take(1, &image, id, MirrorReport { association: Association(1), ..report.clone() });
        reports.take(1, &image, id, MirrorReport { leader_epoch: LeaderEpoch(6), ..report.clone() });
        assert_eq!(reports.of(1, id, association), None, "not reported yet");
        reports.take(1, &image, id, report.clone());
        let older =
            MirrorReport { leader_epoch: LeaderEpoch(4), state: MirrorState::Failed, ..report.clone() };
        reports.take(1, &image, id, older);
        assert_eq!(reports.of(1, id, association).as_deref(), Some(&report));
        assert_eq!(reports.of(2, id, association), None, "reported in an earlier term");
        replay(&mut image, vec![common::metadata::MetadataRecord::RemoveTopic { topic_id: topic_id(1) }]);
        reports.retain_existing(&image);
        assert_eq!(reports.of(1, id, association), None);
    }
}
