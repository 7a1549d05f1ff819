//! ProposeMirror: what partition leaders want committed, in one request.

use bytes::Bytes;
use common::ids::*;
use common::metadata::record::CutKind;
use protocol::ErrorCode;
use protocol::proto::controller::{ProposeMirrorRequest, propose_mirror_request as wire};

use crate::mirror::deps::ControllerLink;
use crate::mirror::state::{ProposalError, Token};

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
        },
        association: association.0,
        offset: offset.0,
        highest_batch_epoch: highest_batch_epoch.0,
        // Only a LOSS cut names a directory: it alone keeps a tail.
        directory: Bytes::copy_from_slice(DirectoryId::ZERO.0.as_bytes()),
        only_release: false,
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

fn error_of(code: i32, message: &str) -> ProposalError {
    let code =
        i16::try_from(code).ok().and_then(ErrorCode::from_code).unwrap_or(ErrorCode::UnknownServerError);
    let why = if message.is_empty() { code.name().to_owned() } else { format!("{}: {message}", code.name()) };
    if code.retriable() { ProposalError::Unavailable(why) } else { ProposalError::Refused(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
