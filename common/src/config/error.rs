//! What can be wrong with a configuration. Every message names the key, the value and what is allowed.

use std::fmt;

use rapidfuzz::distance::levenshtein::{self, BatchComparator};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Not of the type, or out of range. `value` is hidden for sensitive keys.
    #[error("Invalid value {value} for configuration {key}: {allowed}")]
    Invalid { key: String, value: String, allowed: String },
    /// Kafka has it, Kagami does not yet.
    #[error("Invalid value {value} for configuration {key}: {}", supported_hint(key, supported))]
    NotSupported { key: String, value: String, supported: String },
    #[error("Missing required configuration {key}: {allowed}")]
    Missing { key: String, allowed: String },
    #[error("Unknown configuration {key}{}", nearest_hint(.nearest.as_deref()))]
    Unknown { key: String, nearest: Option<String> },
    /// Known, but not to be changed at this level or at run time.
    #[error("Cannot change configuration {key}: {reason}")]
    NotChangeable { key: String, reason: String },
    /// Two keys that do not go together.
    #[error("Invalid value {value} for configuration {key}: {reason}")]
    Inconsistent { key: String, value: String, reason: String },
}

fn supported_hint(key: &str, supported: &str) -> String {
    match supported {
        // Java classes, for ever.
        "" if key.ends_with(".policy.class.name") => {
            "classes cannot be loaded here; leave the key out".to_owned()
        }
        "" => "not yet supported; leave the key out".to_owned(),
        supported => format!("not yet supported, allowed is {supported}"),
    }
}

impl ConfigError {
    pub fn invalid(key: &str, value: &str, allowed: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { key: key.to_owned(), value: value.to_owned(), allowed: allowed.into() }
    }

    pub(crate) fn inconsistent(
        key: &str,
        value: impl fmt::Display,
        reason: impl Into<String>,
    ) -> ConfigError {
        ConfigError::Inconsistent { key: key.to_owned(), value: value.to_string(), reason: reason.into() }
    }

    pub fn key(&self) -> &str {
        match self {
            ConfigError::Invalid { key, .. }
            | ConfigError::NotSupported { key, .. }
            | ConfigError::Missing { key, .. }
            | ConfigError::Unknown { key, .. }
            | ConfigError::NotChangeable { key, .. }
            | ConfigError::Inconsistent { key, .. } => key,
        }
    }
}

/// Something in a properties file that is passed over; the daemon logs it and starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    UnknownKey { key: String, nearest: Option<String> },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownKey { key, nearest } => {
                write!(f, "unknown configuration {key} is ignored{}", nearest_hint(nearest.as_deref()))
            }
        }
    }
}

fn nearest_hint(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default()
}

/// More edits than these are no slip.
const MOST_EDITS: usize = 6;

/// The known key with the fewest edits to `key`, should there be one that a slip can explain.
pub(crate) fn nearest_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    // Keys come over the wire, too, a hundred thousand in one request; the effort for each is small.
    if key.len() > 128 {
        return None;
    }
    let comparator = BatchComparator::new(key.bytes());
    let mut limit = (1 + key.len() / 4).min(MOST_EDITS);
    let mut nearest: Option<&str> = None;
    for candidate in known {
        let Some(edits) = edits_within(limit, &comparator, candidate) else { continue };
        // Of those with as few edits the first in the alphabet.
        if edits < limit || nearest.is_none_or(|nearest| candidate < nearest) {
            (limit, nearest) = (edits, Some(candidate));
        }
    }
    nearest.map(str::to_owned)
}

/// How many edits make one of the other; `None` if more than `limit`.
fn edits_within(limit: usize, key: &BatchComparator<u8>, candidate: &str) -> Option<usize> {
    let arguments = levenshtein::Args::default().score_cutoff(limit);
    key.distance_with_args(candidate.bytes(), &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("log.dirs", "dirs.log", 8),
            ("aXbXcX", "abc", 3),
            ("abc", "aXbXcX", 3),
            ("abcdef", "bcdefg", 2),
        ];
        for (left, right, distance) in cases {
            let key = BatchComparator::new(left.bytes());
            assert_eq!(edits_within(9, &key, right), Some(distance), "{left} to {right}");
            assert_eq!(edits_within(distance, &key, right), Some(distance), "{left} to {right}");
            if let Some(fewer) = distance.checked_sub(1) {
                assert_eq!(edits_within(fewer, &key, right), None, "{left} to {right}");
            }
        }
    }

    #[test]
    fn a_slip_finds_its_key_and_nonsense_finds_none() {
        let known = ["log.retention.hours", "log.retention.ms", "node.id"];
        let nearest = |key| nearest_key(key, known.iter().copied());
        assert_eq!(nearest("log.retention.hour"), Some("log.retention.hours".to_owned()));
        assert_eq!(nearest("nodeid"), Some("node.id".to_owned()));
        assert_eq!(nearest("completely.different"), None);
    }
}
