//! Feature levels: what this software understands, and what a new cluster starts with.

use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::result::{ControlError, ControllerResult, refuse};

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    Upgrade,
    /// Only where nothing is lost by it.
    SafeDowngrade,
    UnsafeDowngrade,
}

/// A level that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub name: String,
    pub level: i16,
    pub kind: UpdateKind,
}

/// All of them or none. A level is taken where this software knows it: every node that is active later
/// has to, see [`unsupported`].
pub fn update(
    image: &MetadataImage,
    updates: &[Update],
    validate_only: bool,
) -> Result<ControllerResult<()>, ControlError> {
    let mut records = Vec::new();
    for update in updates {
        let Update { name, level, kind } = update;
        if updates.iter().filter(|other| other.name == *name).count() > 1 {
            return refuse(ErrorCode::InvalidRequest, format!("feature {name} is named twice"));
        }
        let invalid = |reason: String| {
            refuse(
                ErrorCode::InvalidUpdateVersion,
                format!("Invalid update version {level} for feature {name}. {reason}"),
            )
        };
        let Some((_, lowest, highest)) = FEATURES.iter().find(|(known, ..)| known == name) else {
            return invalid("This controller does not know the feature.".to_owned());
        };
        if !(*lowest..=*highest).contains(level) {
            return invalid(format!("This controller supports versions {lowest}-{highest}."));
        }
        let current = image.features.get(name).copied().unwrap_or(*lowest);
        match kind {
            UpdateKind::Upgrade if *level < current => {
                return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.".to_owned());
            }
            UpdateKind::SafeDowngrade | UpdateKind::UnsafeDowngrade if *level > current => {
                return invalid("Can't downgrade to a newer version.".to_owned());
            }
            _ if *level == current => {}
            _ => records.push(MetadataRecord::FeatureLevel { name: name.clone(), level: *level }),
        }
    }
    if validate_only {
        records.clear();
    }
    Ok(ControllerResult::new(records, ()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    #[test]
    fn levels_that_this_software_does_not_know_are_refused() {
        let mut image = MetadataImage::default();
        let records = bootstrap(&image);
        replay(&mut image, records);
        let ask = |name: &str, level, kind| {
            let update = Update { name: name.to_owned(), level, kind };
            super::update(&image, &[update], false).map(|result| result.records).map_err(|error| error.code)
        };
        assert_eq!(ask("metadata.version", 33, UpdateKind::Upgrade), Ok(vec![]));
        assert_eq!(ask("kagami.metadata.version", 1, UpdateKind::Upgrade), Ok(vec![]));
        for (name, level, kind) in [
            ("metadata.version", 34, UpdateKind::Upgrade),
            ("metadata.version", 32, UpdateKind::UnsafeDowngrade),
            ("metadata.version", 0, UpdateKind::SafeDowngrade),
            ("group.version", 1, UpdateKind::Upgrade),
        ] {
            assert_eq!(ask(name, level, kind), Err(ErrorCode::InvalidUpdateVersion), "{name} {level}");
        }
        let twice = Update { name: "metadata.version".to_owned(), level: 33, kind: UpdateKind::Upgrade };
        assert_eq!(
            super::update(&image, &[twice.clone(), twice], true).unwrap_err().code,
            ErrorCode::InvalidRequest
        );
    }

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
