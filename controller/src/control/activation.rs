//! What a new active controller writes first.

use common::metadata::{MetadataImage, MetadataRecord};

use super::partition::elect_leaderless;
use super::settings::ControlSettings;
use super::topic::Randomness;
use super::{feature, min_isr, mirror};

/// Features of a new cluster and its `min.insync.replicas`, the mirrors' own topic where it is wanted and
/// could not be created before, and leaders for partitions that have none and could.
pub fn activate(
    image: &MetadataImage,
    settings: &ControlSettings,
    random: &mut dyn Randomness,
) -> Vec<MetadataRecord> {
    let mut records = feature::bootstrap(image);
    records.extend(min_isr::safety_records(image, settings));
    if !image.mirrors.is_empty() {
        records.extend(mirror::create::mirror_state_topic(image, settings, random));
    }
    // The file may allow by now what it did not when these lost their leaders.
    records.extend(elect_leaderless(image, settings));
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;
    use common::mirror_state::MIRROR_STATE_TOPIC;

    #[test]
    fn the_first_activation_writes_features_and_a_later_one_what_is_missing() {
        let mut image = with_brokers(&[1]);
        let settings = ControlSettings { mirror_state_replication_factor: 1, ..settings() };
        let records = activate(&image, &settings, &mut Numbers::default());
        assert_eq!(records.len(), feature::FEATURES.len() + 1);
        replay(&mut image, records);
        add_mirror(&mut image, "m", None);
        let records = activate(&image, &settings, &mut Numbers::default());
        replay(&mut image, records);
        assert!(image.topic(MIRROR_STATE_TOPIC).is_some());
        assert_eq!(activate(&image, &settings, &mut Numbers::default()), vec![]);
    }
}
