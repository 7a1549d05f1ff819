//! ProposeMirror: what partition leaders want committed, in one request.

use bytes::Bytes;
use common::ids::*;
use common::metadata::record::CutKind;
use protocol::ErrorCode;
use protocol::proto::controller::{
    ProposeMirrorRequest, ProposeMirrorResponse, propose_mirror_request as wire,
};

use crate::mirror::deps::ControllerLink;
use crate::mirror::state::{FailureKind, FailureReason, ProposalError, Token};

pub enum Proposal {
    Cut(TopicIdPartition, Token, wire::Cut),
    Release(TopicIdPartition, Token, wire::Release),
    Raise(TopicIdPartition, Token, wire::Raise),
}

impl Proposal {
    /// Where a test may stop it.
    pub fn fault_point(&self) -> (&'static str, TopicIdPartition) {
        match self {
            Proposal::Cut(id, ..) => ("mirror.cut.send", *id),
            Proposal::Release(id, ..) => ("mirror.release.send", *id),
            Proposal::Raise(id, ..) => ("mirror.raise.send", *id),
        }
    }
}

pub fn topic_bytes(topic_id: TopicId) -> Bytes {
    Bytes::copy_from_slice(topic_id.0.as_bytes())
}

pub fn cut(
    id: TopicIdPartition,
    kind: CutKind,
    association: Association,
    offset: Offset,
    leader_epoch: LeaderEpoch,
    highest_batch_epoch: LeaderEpoch,
) -> wire::Cut {
    wire::Cut {
        topic_id: topic_bytes(id.topic_id),
        partition: id.partition,
        leader_epoch: leader_epoch.0,
        kind: match kind {
            CutKind::Preparing => 0,
            CutKind::Stopping => 1,
            CutKind::Loss => 2,
            CutKind::Source => 3,
        },
        association: association.0,
        offset: offset.0,
        highest_batch_epoch: highest_batch_epoch.0,
        // Only a LOSS cut names a directory: it alone keeps a tail.
        directory: Bytes::copy_from_slice(DirectoryId::ZERO.0.as_bytes()),
        only_release: false,
        source_cut_id: 0,
    }
}

/// The request, and whose result comes at which place: cuts, releases, then raises.
pub fn request(batch: Vec<Proposal>) -> (ProposeMirrorRequest, Vec<(TopicIdPartition, Token)>) {
    let mut request = ProposeMirrorRequest::default();
    let (mut cuts, mut releases, mut raises) = (Vec::new(), Vec::new(), Vec::new());
    for proposal in batch {
        match proposal {
            Proposal::Cut(id, token, cut) => {
                request.cuts.push(cut);
                cuts.push((id, token));
            }
            Proposal::Release(id, token, release) => {
                request.releases.push(release);
                releases.push((id, token));
            }
            Proposal::Raise(id, token, raise) => {
                request.raises.push(raise);
                raises.push((id, token));
            }
        }
    }
    cuts.extend(releases);
    cuts.extend(raises);
    (request, cuts)
}

/// One result per item, in the request's order.
pub async fn propose(
    controller: &dyn ControllerLink,
    request: ProposeMirrorRequest,
    count: usize,
) -> Vec<Result<MetadataOffset, ProposalError>> {
    let all = |error: ProposalError| (0..count).map(|_| Err(error.clone())).collect();
    let answer = match controller.propose(request).await {
        Ok(answer) => answer,
        Err(why) => return all(ProposalError::Unavailable(why)),
    };
    if answer.error_code != 0 {
        return all(error_of(answer.error_code, ""));
    }
    let mut results: Vec<_> = answer
        .results
        .iter()
        .take(count)
        .map(|result| match result.error_code {
            0 => Ok(MetadataOffset(answer.metadata_offset)),
            code => Err(error_of(code, &result.error_message)),
        })
        .collect();
    let left_out = ProposalError::Unavailable("the answer leaves it out".to_owned());
    results.resize(count, Err(left_out));
    results
}

/// Why the controller does not record a source; `None` if it does, or could not be asked and will be again.
pub fn first_contact_refusal(
    answer: &ProposeMirrorResponse,
    own_cluster_id: &str,
    told: &str,
) -> Option<FailureReason> {
    let result = answer.results.first();
    let (code, message) = match answer.error_code {
        0 => result.map_or((0, ""), |result| (result.error_code, result.error_message.as_str())),
        code => (code, ""),
    };
    let ProposalError::Refused(why) = (code != 0).then(|| error_of(code, message))? else { return None };
    let kind = match i16::try_from(code).ok().and_then(ErrorCode::from_code) {
        Some(ErrorCode::PolicyViolation) => FailureKind::ProducerIdRange,
        Some(ErrorCode::InconsistentClusterId) if told == own_cluster_id => FailureKind::OwnCluster,
        Some(ErrorCode::InconsistentClusterId) => FailureKind::OtherSourceCluster,
        _ => FailureKind::FirstContact,
    };
    Some(FailureReason::new(kind, why))
}

fn error_of(code: i32, message: &str) -> ProposalError {
    let code =
        i16::try_from(code).ok().and_then(ErrorCode::from_code).unwrap_or(ErrorCode::UnknownServerError);
    let why = if message.is_empty() { code.name().to_owned() } else { format!("{}: {message}", code.name()) };
    if code.retriable() { ProposalError::Unavailable(why) } else { ProposalError::Refused(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::proto::controller::propose_mirror_response;

    #[test]
    fn a_refusal_at_first_contact_says_which_it_was() {
        let refused = |code: ErrorCode, told| {
            let result = propose_mirror_response::Result {
                error_code: code.code().into(),
                error_message: "why".to_owned(),
            };
            let answer = ProposeMirrorResponse { results: vec![result], ..Default::default() };
            first_contact_refusal(&answer, "here", told).map(|reason| reason.kind)
        };
        let table = [
            (ErrorCode::None, "there", None),
            (ErrorCode::NotController, "there", None),
            (ErrorCode::PolicyViolation, "there", Some(FailureKind::ProducerIdRange)),
            (ErrorCode::InconsistentClusterId, "here", Some(FailureKind::OwnCluster)),
            (ErrorCode::InconsistentClusterId, "there", Some(FailureKind::OtherSourceCluster)),
            (ErrorCode::InvalidRequest, "", Some(FailureKind::FirstContact)),
        ];
        for (code, told, expected) in table {
            assert_eq!(refused(code, told), expected, "{code:?}");
        }
        let whole = ProposeMirrorResponse {
            error_code: ErrorCode::StaleBrokerEpoch.code().into(),
            ..Default::default()
        };
        assert!(first_contact_refusal(&whole, "here", "there").is_some());
    }

    #[test]
    fn results_belong_to_cuts_then_releases_then_raises() {
        let id = |partition| TopicIdPartition::new(TopicId::ZERO, partition);
        let token = Token { leadership: LeaderEpoch(1), association: Association(1), step: 0 };
        let zero = LeaderEpoch(0);
        let (request, order) = request(vec![
            Proposal::Raise(id(0), token, wire::Raise::default()),
            Proposal::Cut(id(1), token, cut(id(1), CutKind::Stopping, Association(1), Offset(5), zero, zero)),
            Proposal::Release(id(2), token, wire::Release::default()),
        ]);
        assert_eq!((request.cuts.len(), request.releases.len(), request.raises.len()), (1, 1, 1));
        assert_eq!(request.cuts[0].kind, 1);
        assert_eq!(order.iter().map(|(id, _)| id.partition).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
