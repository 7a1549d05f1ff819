//! PURE: what the source's topics mean for ours.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use common::ids::*;
use common::metadata::MetadataImage;
use common::metadata::image::TopicImage;
use protocol::ErrorCode;

use crate::mirror::source::{SourceMetadata, SourceTopic};

/// Complete listings in a row that must leave a topic out before it counts as gone (decision 19).
const LISTINGS_WITHOUT: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPlan {
    /// Pending topics that the source has: name, id, partitions.
    pub creates: Vec<(Arc<str>, TopicId, i32)>,
    /// Topics with fewer partitions here.
    pub grows: Vec<(Arc<str>, TopicId, i32)>,
    /// Mirrored topics whose id the listing leaves out: to be asked for by name.
    pub missing: Vec<Arc<str>>,
    /// Topics of the mirror that are there and the same: their configs are compared.
    pub present: Vec<Arc<str>>,
    /// What an operator should know.
    pub complaints: Vec<String>,
}

/// Topics that a mirror copies now.
pub fn mirrored<'a>(
    image: &'a MetadataImage,
    mirror: &'a str,
) -> impl Iterator<Item = &'a Arc<TopicImage>> + 'a {
    image.topics.by_id.values().filter(move |topic| {
        topic.mirror.as_ref().is_some_and(|topic| &*topic.mirror == mirror && !topic.removed)
    })
}

pub fn plan(image: &MetadataImage, mirror: &str, listing: &SourceMetadata) -> TopicPlan {
    let mut plan = TopicPlan::default();
    let ids: HashMap<TopicId, &SourceTopic> =
        listing.topics.values().filter_map(|topic| Some((topic.id?, topic))).collect();
    for (name, pending) in &image.pending_mirror_topics {
        if &**pending != mirror {
            continue;
        }
        let Some(topic) = listing.topics.get(name).filter(|topic| topic.error.is_none()) else { continue };
        match (topic.id, i32::try_from(topic.partitions.len())) {
            (Some(id), Ok(partitions)) if partitions > 0 => plan.creates.push((name.clone(), id, partitions)),
            (None, _) => plan.complaints.push(format!("{name}: the source is too old to tell topic ids")),
            _ => {}
        }
    }
    for topic in mirrored(image, mirror) {
        let by_name = listing.topics.get(&topic.name);
        let same = match ids.get(&topic.id) {
            Some(found) if found.name == topic.name => Some(*found),
            Some(found) => {
                plan.complaints
                    .push(format!("{}: its id belongs to {} at the source", topic.name, found.name));
                None
            }
            // A source without ids: the name has to do.
            None => by_name.filter(|found| found.id.is_none() && found.error.is_none()),
        };
        let Some(found) = same else {
            plan.missing.push(topic.name.clone());
            continue;
        };
        plan.present.push(topic.name.clone());
        let (here, there) = (topic.partitions.len(), found.partitions.len());
        if found.error.is_none() && there > here {
            if let Ok(there) = i32::try_from(there) {
                plan.grows.push((topic.name.clone(), topic.id, there));
            }
        } else if found.error.is_none() && there < here {
            plan.complaints.push(format!("{}: {there} partitions at the source, {here} here", topic.name));
        }
    }
    plan
}

/// Counts in how many listings in a row a topic was confirmed to be missing.
#[derive(Debug, Default)]
pub struct MissingTopics {
    listings: BTreeMap<TopicId, (Association, u32)>,
}

/// Whether asking for the topic by name confirms that it is gone. An authorization error, like any
/// other, is "could not ask" (interleaving 9).
pub fn is_gone(topic_id: TopicId, by_name: Option<&SourceTopic>) -> bool {
    match by_name {
        None => false,
        Some(topic) => match topic.error {
            Some(ErrorCode::UnknownTopicOrPartition) => true,
            Some(_) => false,
            None => topic.id.is_some_and(|id| id != topic_id),
        },
    }
}

impl MissingTopics {
    /// The listing was not complete, or empty: no evidence of anything, and the count starts anew.
    pub fn no_listing(&mut self) {
        self.listings.clear();
    }

    /// Takes the topics confirmed missing after one complete listing; returns those that are gone.
    pub fn listed(
        &mut self,
        confirmed: impl IntoIterator<Item = (TopicId, Association)>,
    ) -> Vec<(TopicId, Association)> {
        let confirmed: BTreeSet<(TopicId, Association)> = confirmed.into_iter().collect();
        let before = std::mem::take(&mut self.listings);
        let mut gone = Vec::new();
        for (id, association) in confirmed {
            let count = match before.get(&id) {
                Some((counted_for, count)) if *counted_for == association => count + 1,
                _ => 1,
            };
            if count >= LISTINGS_WITHOUT {
                gone.push((id, association));
            }
            self.listings.insert(id, (association, count));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::source::SourcePartition;
    use common::metadata::image::PartitionImage;
    use common::metadata::record::{
        LeaderRecoveryState, PartitionMirror, PartitionRegistration, TopicMirror,
    };
    use uuid::Uuid;

    fn id(byte: u8) -> TopicId {
        TopicId(Uuid::from_bytes([byte; 16]))
    }

    fn image(partitions: usize, removed: bool) -> MetadataImage {
        let registration = PartitionRegistration {
            replicas: vec![],
            directories: vec![],
            isr: vec![],
            elr: vec![],
            last_known_elr: vec![],
            adding_replicas: vec![],
            removing_replicas: vec![],
            leader: None,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            leader_recovery_state: LeaderRecoveryState::Recovered,
        };
        let partition = Arc::new(PartitionImage { registration, mirror: PartitionMirror::default() });
        let topic = TopicImage {
            id: id(1),
            name: "t".into(),
            created_at: MetadataOffset(1),
            partitions: std::iter::repeat_n(partition, partitions).collect(),
            mirror: Some(Arc::new(TopicMirror {
                mirror: "m".into(),
                removed,
                association: Association(5),
                recopy: false,
            })),
        };
        let mut image = MetadataImage::default();
        image.topics.by_name.insert("t".into(), id(1));
        image.topics.by_id.insert(id(1), Arc::new(topic));
        image.pending_mirror_topics.insert("new".into(), "m".into());
        image.pending_mirror_topics.insert("others".into(), "m2".into());
        image
    }

    fn topic(name: &str, topic_id: Option<TopicId>, partitions: i32) -> SourceTopic {
        let partition = SourcePartition { leader: Some(1), epoch: Some(LeaderEpoch(0)), error: None };
        SourceTopic {
            name: name.into(),
            id: topic_id,
            internal: false,
            error: None,
            partitions: (0..partitions).map(|index| (index, partition.clone())).collect(),
        }
    }

    fn listing(topics: Vec<SourceTopic>) -> SourceMetadata {
        let topics = topics.into_iter().map(|topic| (topic.name.clone(), topic)).collect();
        SourceMetadata { topics, ..SourceMetadata::default() }
    }

    #[test]
    fn case_4_a_pending_topic_is_created_with_the_sources_id_and_partitions() {
        let listing = listing(vec![topic("t", Some(id(1)), 3), topic("new", Some(id(2)), 6)]);
        let plan = plan(&image(3, false), "m", &listing);
        assert_eq!(plan.creates, [("new".into(), id(2), 6)]);
        assert_eq!(plan.present, ["t".into()]);
        assert!(plan.grows.is_empty() && plan.missing.is_empty() && plan.complaints.is_empty());
    }

    #[test]
    fn case_24_more_partitions_at_the_source() {
        let plan = plan(&image(3, false), "m", &listing(vec![topic("t", Some(id(1)), 6)]));
        assert_eq!(plan.grows, [("t".into(), id(1), 6)]);
    }

    #[test]
    fn fewer_partitions_are_a_complaint_and_nothing_else() {
        let plan = plan(&image(3, false), "m", &listing(vec![topic("t", Some(id(1)), 2)]));
        assert!(plan.grows.is_empty() && plan.missing.is_empty());
        assert_eq!(plan.complaints.len(), 1);
    }

    #[test]
    fn case_27_a_recreated_topic_is_missing_and_never_merged() {
        let plan = plan(&image(3, false), "m", &listing(vec![topic("t", Some(id(9)), 3)]));
        assert_eq!(plan.missing, ["t".into()]);
        assert!(plan.present.is_empty());
        assert!(is_gone(id(1), Some(&topic("t", Some(id(9)), 3))));
    }

    #[test]
    fn a_source_without_ids_is_matched_by_name() {
        let plan = plan(&image(3, false), "m", &listing(vec![topic("t", None, 3), topic("new", None, 1)]));
        assert_eq!(plan.present, ["t".into()]);
        assert!(plan.creates.is_empty());
        assert_eq!(plan.complaints.len(), 1);
    }

    #[test]
    fn a_removed_topic_is_left_alone() {
        assert_eq!(plan(&image(3, true), "m", &listing(vec![])).missing, Vec::<Arc<str>>::new());
    }

    /// Interleaving 9: the right to describe the topic was revoked, complete listings come without it.
    #[test]
    fn counterexample_9_an_authorization_error_is_not_a_deletion() {
        let denied = SourceTopic { error: Some(ErrorCode::TopicAuthorizationFailed), ..topic("t", None, 0) };
        assert!(!is_gone(id(1), Some(&denied)));
        assert!(!is_gone(id(1), None));
        let unknown = SourceTopic { error: Some(ErrorCode::UnknownTopicOrPartition), ..topic("t", None, 0) };
        assert!(is_gone(id(1), Some(&unknown)));
        let unavailable = SourceTopic { error: Some(ErrorCode::LeaderNotAvailable), ..topic("t", None, 0) };
        assert!(!is_gone(id(1), Some(&unavailable)));
        assert!(!is_gone(id(1), Some(&topic("t", Some(id(1)), 3))), "it is there after all");
    }

    #[test]
    fn case_26_gone_takes_two_listings_in_a_row_for_the_same_association() {
        let missing = |association| [(id(1), Association(association))];
        let mut topics = MissingTopics::default();
        assert_eq!(topics.listed(missing(5)), []);
        topics.no_listing();
        assert_eq!(topics.listed(missing(5)), [], "a failed listing begins anew");
        assert_eq!(topics.listed([]), []);
        assert_eq!(topics.listed(missing(5)), [], "seen in between");
        assert_eq!(topics.listed(missing(6)), [], "another association");
        assert_eq!(topics.listed(missing(6)), missing(6));
    }
}
