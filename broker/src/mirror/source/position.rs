//! LastMirroredOffsets: what the source recorded of a topic's earlier copies, and its own cuts
//! (decisions 12 and 20). The interpretation of answers is pure.

use std::collections::HashMap;
use std::sync::Arc;

use common::ids::*;
use protocol::messages::TopicName;
use protocol::mirror::last_mirrored_offsets::{OffsetResponsePartition, PartitionState, TopicState};
use protocol::mirror::{DescribeMirrorsRequest, DescribeMirrorsResponse, LastMirroredOffsetsRequest};
use protocol::{ErrorCode, Request, Response, StrBytes};

use crate::mirror::state::{LastMirrored, SourceCuts, SourceFailure};

use super::client::{SourceClient, unexpected};

/// What the source answered for one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub last_mirrored: LastMirrored,
    pub cuts: SourceCuts,
    pub checked_own_cut: Option<CutId>,
    /// The partition's, as the source's controllers have it; `UNKNOWN`: not told.
    pub leader_epoch: LeaderEpoch,
}

impl Recorded {
    /// What the controllers tell and what a leader tells are looked at together: a leader that has been
    /// deposed since, or leads an earlier topic with the same id, must not be asked.
    pub fn fits(&self, leader: LeaderEpoch) -> Result<(), SourceFailure> {
        if self.leader_epoch <= leader {
            return Ok(());
        }
        Err(SourceFailure::CouldNotAsk(format!(
            "its metadata tells leader epoch {leader}, its controllers {}",
            self.leader_epoch
        )))
    }
}

/// A partition to ask about, and the newest of the source's cut ids seen so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub topic: Arc<str>,
    pub id: TopicIdPartition,
    pub seen: Option<CutId>,
}

pub fn request(mirror: &str, own_cluster_id: &str, asked: &[Asked]) -> LastMirroredOffsetsRequest {
    let mut request = LastMirroredOffsetsRequest {
        mirror_name: StrBytes::from_string(mirror.to_owned()),
        cluster_id: Some(StrBytes::from_string(own_cluster_id.to_owned())),
        ..Default::default()
    };
    let mut places: HashMap<TopicId, usize> = HashMap::new();
    for partition in asked {
        let place = *places.entry(partition.id.topic_id).or_insert_with(|| {
            request.topics.push(TopicState {
                name: TopicName(StrBytes::from_string(partition.topic.to_string())),
                topic_id: partition.id.topic_id.0,
                ..Default::default()
            });
            request.topics.len() - 1
        });
        request.topics[place].partitions.push(PartitionState {
            partition_index: partition.id.partition,
            last_seen_cut_id: partition.seen.map_or(-1, |id| id.0),
        });
    }
    request
}

/// "Nothing recorded", 0 and "could not ask" are three different things (decision 9).
pub fn interpret(answer: &OffsetResponsePartition) -> Result<Recorded, SourceFailure> {
    let not_negative = |value: i64| (value >= 0).then_some(value);
    let last_mirrored = match ErrorCode::from_code(answer.error_code) {
        Some(ErrorCode::None) if answer.recorded || answer.last_mirrored_offset > 0 => {
            LastMirrored::Recorded(Offset(answer.last_mirrored_offset.max(0)))
        }
        Some(ErrorCode::None) => LastMirrored::Nothing,
        // Retriable: the topic is itself a mirror there, and not released.
        Some(ErrorCode::OffsetNotAvailable) => LastMirrored::NotWritable { mirrors_other: false },
        // Every earlier copy was released before it had cut anything.
        Some(ErrorCode::ResourceNotFound) => LastMirrored::OnlyUncut,
        code => {
            let code = code.map_or_else(|| answer.error_code.to_string(), |code| code.name().to_owned());
            let message = answer.error_message.as_ref().map_or("", |message| message.as_str());
            return Err(SourceFailure::CouldNotAsk(format!("LastMirroredOffsets: {code} {message}")));
        }
    };
    Ok(Recorded {
        last_mirrored,
        cuts: SourceCuts {
            newest: not_negative(answer.newest_cut_id).map(CutId),
            lowest_since: not_negative(answer.lowest_cut_offset).map(Offset),
        },
        checked_own_cut: not_negative(answer.checked_cut_id).map(CutId),
        leader_epoch: LeaderEpoch(answer.leader_epoch),
    })
}

/// One result per partition, in order. A partition left out of the answer could not be asked.
pub async fn ask(client: &SourceClient, asked: &[Asked]) -> Vec<Result<Recorded, SourceFailure>> {
    let own_cluster_id = client.identity().own_cluster_id.clone();
    let request = request(&client.mirror, &own_cluster_id, asked);
    let answer = match client.call(Request::LastMirroredOffsets(request)).await {
        Ok((Response::LastMirroredOffsets(answer), _)) if answer.error_code == 0 => answer,
        Ok((Response::LastMirroredOffsets(answer), _)) => {
            let why = format!("LastMirroredOffsets: error {}", answer.error_code);
            return asked.iter().map(|_| Err(SourceFailure::CouldNotAsk(why.clone()))).collect();
        }
        Ok(_) => return asked.iter().map(|_| Err(unexpected("LastMirroredOffsets"))).collect(),
        Err(failure) => return asked.iter().map(|_| Err(failure.clone())).collect(),
    };
    let mut found = HashMap::new();
    for topic in &answer.topics {
        for partition in &topic.partitions {
            found.insert((topic.name.0.as_str(), partition.partition_index), partition);
        }
    }
    let left_out = || SourceFailure::CouldNotAsk("LastMirroredOffsets leaves the partition out".to_owned());
    asked
        .iter()
        .map(|asked| {
            let answer = found.get(&(&*asked.topic, asked.id.partition)).ok_or_else(left_out)?;
            interpret(answer)
        })
        .collect()
}

/// Whether a topic that is read-only at the source is MIRRORING there from a third cluster: only then
/// may a copy be made anew from it (decision 11).
pub async fn mirrors_other(
    client: &SourceClient,
    leader: &str,
    asked: &Asked,
) -> Result<bool, SourceFailure> {
    let request = Request::DescribeMirrors(DescribeMirrorsRequest::default());
    match client.call_at(leader, request).await? {
        (Response::DescribeMirrors(answer), _) => {
            Ok(is_mirroring_from_other(&answer, asked, &client.identity().own_cluster_id))
        }
        _ => Err(unexpected("DescribeMirrors")),
    }
}

fn is_mirroring_from_other(answer: &DescribeMirrorsResponse, asked: &Asked, own_cluster_id: &str) -> bool {
    answer.mirrors.iter().any(|mirror| {
        let other = mirror.source_cluster_id.as_ref().is_some_and(|id| id.as_str() != own_cluster_id);
        other
            && mirror.topics.iter().filter(|topic| topic.topic_name.0.as_str() == &*asked.topic).any(
                |topic| {
                    topic.partitions.iter().any(|partition| {
                        partition.partition_index == asked.id.partition
                            && partition.state.as_str() == "MIRRORING"
                    })
                },
            )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: ErrorCode, offset: i64, recorded: bool) -> OffsetResponsePartition {
        let error_code = error.code();
        OffsetResponsePartition { error_code, last_mirrored_offset: offset, recorded, ..Default::default() }
    }

    /// Case 15 of N.2, and invariant 7: only an answer without error says "nothing recorded".
    #[test]
    fn case_15_an_error_is_never_nothing_recorded() {
        let meaning = |answer| interpret(&answer).map(|recorded| recorded.last_mirrored);
        assert_eq!(meaning(answer(ErrorCode::None, 0, false)), Ok(LastMirrored::Nothing));
        assert_eq!(meaning(answer(ErrorCode::None, 0, true)), Ok(LastMirrored::Recorded(Offset(0))));
        assert_eq!(meaning(answer(ErrorCode::None, 60, true)), Ok(LastMirrored::Recorded(Offset(60))));
        for code in ErrorCode::ALL.iter().filter(|code| **code != ErrorCode::None) {
            let meaning = meaning(answer(*code, 0, false));
            assert_ne!(meaning, Ok(LastMirrored::Nothing), "{}", code.name());
            assert!(!matches!(meaning, Ok(LastMirrored::Recorded(_))), "{}", code.name());
        }
    }

    #[test]
    fn a_leader_older_than_the_controllers_answer_is_not_asked() {
        let told = OffsetResponsePartition { leader_epoch: 7, ..answer(ErrorCode::None, 60, true) };
        let recorded = interpret(&told).unwrap();
        assert!(matches!(recorded.fits(LeaderEpoch(6)), Err(SourceFailure::CouldNotAsk(_))));
        assert_eq!(recorded.fits(LeaderEpoch(7)), Ok(()));
        let not_told = interpret(&answer(ErrorCode::None, 60, true)).unwrap();
        assert_eq!(not_told.fits(LeaderEpoch(0)), Ok(()));
    }

    /// Interleaving 26: the cuts are told even where the topic is read-only.
    #[test]
    fn counterexample_26_cuts_come_with_an_error_too() {
        let mut told = answer(ErrorCode::OffsetNotAvailable, 0, false);
        told.newest_cut_id = 9;
        told.lowest_cut_offset = 60;
        let recorded = interpret(&told).unwrap();
        assert_eq!(recorded.cuts, SourceCuts { newest: Some(CutId(9)), lowest_since: Some(Offset(60)) });
    }
}
