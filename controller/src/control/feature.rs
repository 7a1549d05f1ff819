//! Feature levels: what this software understands, and what a new cluster starts with.

use common::metadata::{MetadataImage, MetadataRecord};

/// (name, lowest, highest and initial level). `metadata.version` 33 is Kafka 4.4's.
pub const FEATURES: &[(&str, i16, i16)] = &[("metadata.version", 33, 33), ("kagami.metadata.version", 1, 1)];

/// Records for features that the image does not have yet.
pub fn bootstrap(image: &MetadataImage) -> Vec<MetadataRecord> {
    FEATURES
        .iter()
        .filter(|(name, ..)| !image.features.contains_key(*name))
        .map(|(name, _, level)| MetadataRecord::FeatureLevel { name: (*name).to_owned(), level: *level })
        .collect()
}

/// A level in the image that this software does not understand: it must not lead.
pub fn unsupported(image: &MetadataImage) -> Option<String> {
    image.features.iter().find_map(|(name, level)| {
        let known = FEATURES.iter().find(|(known, ..)| known == name);
        match known {
            Some((_, lowest, highest)) if (*lowest..=*highest).contains(level) => None,
            Some((_, lowest, highest)) => {
                Some(format!("feature {name} is at level {level}; this software knows {lowest} to {highest}"))
            }
            None => Some(format!("feature {name} at level {level} is not known to this software")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    #[test]
    fn a_new_cluster_gets_its_levels_once() {
        let mut image = MetadataImage::default();
        let records = bootstrap(&image);
        assert_eq!(records.len(), FEATURES.len());
        replay(&mut image, records);
        assert_eq!(bootstrap(&image), vec![]);
        assert_eq!(unsupported(&image), None);
        replay(
            &mut image,
            vec![MetadataRecord::FeatureLevel { name: "metadata.version".to_owned(), level: 34 }],
        );
        assert!(unsupported(&image).unwrap().contains("34"));
    }
}
