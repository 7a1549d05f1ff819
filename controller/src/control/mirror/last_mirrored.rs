//! LastMirroredOffsets, the answer (decision 12): where the asker's copy is to be cut before it follows
//! this cluster. Answered from the image, after a read-index confirmation.

use common::ids::*;
use common::metadata::MetadataImage;
use common::metadata::image::{PartitionImage, TopicImage};
use common::metadata::record::{LeaderRecoveryState, Release};
use protocol::error_code::ErrorCode;

use super::super::ControlError;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Told its cluster id: releases from that cluster count.
    Cluster(String),
    /// As in the KIP: by the name of a mirror, which stands for that mirror's source.
    MirrorName(String),
}

/// What is asked of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub topic: String,
    /// Zero: not known.
    pub topic_id: TopicId,
    pub partition: i32,
    /// The last of our cut ids that the asker had seen, -1: none.
    pub last_seen_cut_id: i64,
}

/// The answer; the cut ids hold with an error too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub offset: Option<Offset>,
    pub newest_cut_id: Option<CutId>,
    pub lowest_cut_since: Option<Offset>,
    /// The newest of the asker's cut ids that the association had checked.
    pub checked_cut_id: Option<i64>,
    /// What else the asker learns of the partition must not be older.
    pub leader_epoch: Option<LeaderEpoch>,
    pub error: Option<ControlError>,
}

/// Answers for one partition. No offset and no error: nothing recorded.
pub fn last_mirrored_offset(image: &MetadataImage, asker: &Asker, question: &Question) -> Answer {
    let failed =
        |code, message: String| Answer { error: Some(ControlError::new(code, message)), ..Answer::default() };
    let by_cluster = matches!(asker, Asker::Cluster(_));
    let topic = image.topic(&question.topic);
    let partition = topic.and_then(|topic| {
        usize::try_from(question.partition).ok().and_then(|index| topic.partitions.get(index))
    });
    let (Some(topic), Some(partition)) = (topic, partition) else {
        // An asker that knows our tags waits; the KIP's answer for the unknown is "nothing recorded".
        return if by_cluster {
            failed(
                ErrorCode::UnknownTopicOrPartition,
                format!("no partition {} of topic '{}'", question.partition, question.topic),
            )
        } else {
            Answer::default()
        };
    };
    if !question.topic_id.is_zero() && question.topic_id != topic.id {
        return failed(
            ErrorCode::InconsistentTopicId,
            format!("topic '{}' has the id {} here", topic.name, topic.id),
        );
    }
    let since =
        |id: CutId| partition.mirror.cuts_told().filter(move |cut| cut.id > id).map(|cut| cut.offset).min();
    // A topic that was made anew with its id counts as a cut at 0, so its creation is the oldest cut. Whoever
    // has seen none yet knows nothing of an earlier topic either.
    let created = CutId(topic.created_at.0);
    let seen = CutId(question.last_seen_cut_id);
    let recreated = seen.0 >= 0 && created > seen;
    let mut answer = Answer {
        newest_cut_id: partition.mirror.cuts_told().map(|cut| cut.id).max().max(Some(created)),
        lowest_cut_since: if recreated { Some(Offset::ZERO) } else { since(seen) },
        leader_epoch: Some(partition.registration.leader_epoch),
        ..Answer::default()
    };
    let source = match asker {
        Asker::Cluster(id) => Some(id.as_str()),
        Asker::MirrorName(name) => {
            image.mirrors.get(name.as_str()).and_then(|mirror| mirror.source_cluster_id.as_deref())
        }
    };
    let releases: Vec<&Release> = source.map(|id| releases_from(topic, partition, id)).unwrap_or_default();
    let recorded = releases
        .iter()
        .filter_map(|release| Some((release, release.offset?, release.preparing_cut?)))
        .max_by_key(|(release, ..)| release.association);
    answer.checked_cut_id =
        recorded.as_ref().map(|(release, ..)| release.checked_cut_id).filter(|id| *id >= 0);
    if !topic.is_writable(question.partition) {
        // It may itself be cut before it is released, or be a copy of the asker: the asker waits uncut.
        answer.error = Some(ControlError::new(
            ErrorCode::OffsetNotAvailable,
            format!("partition {} of topic '{}' is itself a mirror", question.partition, topic.name),
        ));
        return answer;
    }
    if partition.registration.leader_recovery_state == LeaderRecoveryState::Recovering {
        // Its log may end below what was recorded; the LOSS cut is about to tell where.
        answer.error = Some(ControlError::new(
            ErrorCode::OffsetNotAvailable,
            format!(
                "partition {} of topic '{}' waits until its unclean election is settled",
                question.partition, topic.name
            ),
        ));
        return answer;
    }
    match recorded {
        Some((_, offset, preparing_cut)) => {
            answer.offset = Some(since(preparing_cut).map_or(offset, |lowest| lowest.min(offset)));
        }
        None if !releases.is_empty() && by_cluster => {
            // Released without ever having been cut: "nothing recorded" would empty the last copy.
            answer.error = Some(ControlError::new(
                ErrorCode::ResourceNotFound,
                format!(
                    "partition {} of topic '{}' was released before it was cut to its source: only --recopy \
                     may copy it back",
                    question.partition, topic.name
                ),
            ));
        }
        None => {}
    }
    answer
}

/// Releases of this topic, as it is since its creation, from one source.
fn releases_from<'a>(topic: &TopicImage, partition: &'a PartitionImage, source: &str) -> Vec<&'a Release> {
    releases_of(partition)
        .filter(|release| release.association.0 >= topic.created_at.0 && is_from(topic, release, source))
        .collect()
}

fn releases_of(partition: &PartitionImage) -> impl Iterator<Item = &Release> {
    partition.mirror.history.iter().chain(&partition.mirror.release)
}

/// A partition that was born released has the source of its sisters. An association that was released
/// before its source was ever reached may have been with anybody, so with the asker too: it recorded
/// nothing, but is not "nothing recorded".
fn is_from(topic: &TopicImage, release: &Release, source: &str) -> bool {
    if !release.source_cluster_id.is_empty() {
        return release.source_cluster_id == source;
    }
    let sisters = topic.partitions.iter().flat_map(|partition| releases_of(partition));
    let mut known = sisters
        .filter(|sister| sister.association == release.association && !sister.source_cluster_id.is_empty());
    known.next().is_none_or(|sister| sister.source_cluster_id == source)
}

#[cfg(test)]
#[path = "last_mirrored_tests.rs"]
mod tests;
