//! What the metadata image says of a mirror partition that this broker leads.

use std::sync::Arc;

use common::ids::*;
use common::metadata::image::{MetadataImage, TopicImage};
use common::metadata::record::{Cut, LeaderRecoveryState};

/// A committed cut of the newest association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutFact {
    pub id: CutId,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

impl From<&Cut> for CutFact {
    fn from(cut: &Cut) -> CutFact {
        CutFact { id: cut.id, offset: cut.offset, leader_epoch: cut.leader_epoch }
    }
}

/// One partition's view of the image. Two equal values ask for the same thing.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorFacts {
    pub topic: Arc<str>,
    pub mirror: Arc<str>,
    pub association: Association,
    /// The suffix stands: the operator, or a deletion at the source, wants it stopped.
    pub removed: bool,
    /// `--recopy` was accepted for this association.
    pub recopy: bool,
    pub leader_epoch: LeaderEpoch,
    pub preparing_cut: Option<CutFact>,
    pub stopping_cut: Option<CutFact>,
    /// A release of this association is in the image: writable, whatever else is known.
    pub released: bool,
    /// An unclean election is not yet settled by its LOSS cut: nothing may be done.
    pub recovering: bool,
    /// The metadata offset of the topic's record: a re-created topic counts as a cut at 0.
    pub created_at: MetadataOffset,
    /// The cuts made here of which a copy has to hear, oldest first; one that is left out was followed by a
    /// lower one.
    pub cut_log: Vec<(CutId, Offset)>,
    /// The newest of the source's cuts that this association has taken note of.
    pub checked_source_cut: Option<CutId>,
}

impl MirrorFacts {
    /// The facts of a partition if `broker` leads it and its topic belongs to a mirror.
    pub fn of(image: &MetadataImage, broker: BrokerId, id: TopicIdPartition) -> Option<MirrorFacts> {
        let topic = image.topic_by_id(id.topic_id)?;
        MirrorFacts::of_topic(topic, broker, id.partition)
    }

    pub fn of_topic(topic: &TopicImage, broker: BrokerId, partition: i32) -> Option<MirrorFacts> {
        let mirror = topic.mirror.as_ref()?;
        let image = topic.partitions.get(usize::try_from(partition).ok()?)?;
        if image.registration.leader != Some(broker) {
            return None;
        }
        let association = mirror.association;
        let ours = |cut: &&Cut| cut.association == Some(association);
        Some(MirrorFacts {
            topic: topic.name.clone(),
            mirror: mirror.mirror.clone(),
            association,
            removed: mirror.removed,
            recopy: mirror.recopy,
            leader_epoch: image.registration.leader_epoch,
            preparing_cut: image.mirror.preparing_cut.as_ref().filter(ours).map(CutFact::from),
            stopping_cut: image.mirror.stopping_cut.as_ref().filter(ours).map(CutFact::from),
            released: image.mirror.release.as_ref().is_some_and(|release| release.association == association),
            recovering: image.registration.leader_recovery_state == LeaderRecoveryState::Recovering,
            created_at: topic.created_at,
            cut_log: image.mirror.cuts_told().map(|cut| (cut.id, cut.offset)).collect(),
            checked_source_cut: image.mirror.checked_source_cut,
        })
    }
}
