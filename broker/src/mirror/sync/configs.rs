//! PURE: topic configs of the source against ours, key by key.

use std::collections::BTreeMap;

use common::metadata::image::ConfigMap;
use protocol::messages::DescribeConfigsRequest;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::DescribeConfigsResult;
use protocol::{ErrorCode, StrBytes};

use crate::mirror::source::SourceSettings;

const TOPIC: i8 = 2;
/// Set on the topic itself, not inherited.
const DYNAMIC_TOPIC_CONFIG: i8 = 1;
/// What a source may make us store of one topic; the controller validates each value besides.
const MOST_KEYS: usize = 1_000;
const LONGEST_VALUE: usize = 64 * 1024;

pub fn request(topics: &[std::sync::Arc<str>]) -> DescribeConfigsRequest {
    let mut request = DescribeConfigsRequest::default();
    request.resources = topics
        .iter()
        .map(|topic| {
            let mut resource = DescribeConfigsResource::default();
            resource.resource_type = TOPIC;
            resource.resource_name = StrBytes::from_string(topic.to_string());
            resource.configuration_keys = None;
            resource
        })
        .collect();
    request
}

/// Why the source does not tell a topic's configs.
pub fn refusal(result: &DescribeConfigsResult) -> Option<String> {
    let code = result.error_code;
    let name =
        || ErrorCode::from_code(code).map_or_else(|| format!("error {code}"), |code| code.name().to_owned());
    (code != 0).then(name)
}

/// What is set on the source's topic and copied.
pub fn wanted(result: &DescribeConfigsResult, excluded: &SourceSettings) -> BTreeMap<String, String> {
    result
        .configs
        .iter()
        .filter(|entry| entry.config_source == DYNAMIC_TOPIC_CONFIG && !entry.is_sensitive)
        .filter_map(|entry| Some((entry.name.to_string(), entry.value.as_ref()?.to_string())))
        .filter(|(key, value)| !excluded.excludes(key) && value.len() <= LONGEST_VALUE && key.len() <= 249)
        .take(MOST_KEYS)
        .collect()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChange {
    pub set: BTreeMap<String, String>,
    pub unset: Vec<String>,
}

/// What makes ours equal to the source's; `None` if it is.
pub fn difference(
    wanted: &BTreeMap<String, String>,
    current: Option<&ConfigMap>,
    excluded: &SourceSettings,
) -> Option<ConfigChange> {
    let value_here = |key: &String| current.and_then(|current| current.get(key));
    let set: BTreeMap<String, String> = wanted
        .iter()
        .filter(|(key, value)| value_here(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let unset: Vec<String> = current
        .into_iter()
        .flat_map(|current| current.keys())
        .filter(|key| !excluded.excludes(key) && !wanted.contains_key(*key))
        .cloned()
        .collect();
    (!set.is_empty() || !unset.is_empty()).then_some(ConfigChange { set, unset })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use protocol::messages::describe_configs_response::DescribeConfigsResourceResult;

    /// What a source describes: key, value, where it comes from.
    pub(crate) fn source(entries: &[(&'static str, &'static str, i8)]) -> DescribeConfigsResult {
        let mut result = DescribeConfigsResult::default();
        result.configs = entries
            .iter()
            .map(|(key, value, source)| {
                let mut entry = DescribeConfigsResourceResult::default();
                entry.name = StrBytes::from_static_str(key);
                entry.value = Some(StrBytes::from_static_str(value));
                entry.config_source = *source;
                entry
            })
            .collect();
        result
    }

    fn default_settings() -> SourceSettings {
        SourceSettings::of(&here(&[("bootstrap.servers", "a:1")]))
    }

    fn here(pairs: &[(&str, &str)]) -> ConfigMap {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn case_25_what_is_set_on_the_topic_is_copied_except_excluded_keys() {
        let excluded = default_settings();
        let source = source(&[
            ("retention.ms", "60000", 1),
            ("min.insync.replicas", "2", 1),
            ("message.timestamp.type", "LogAppendTime", 1),
            ("segment.bytes", "1073741824", 5),
            ("mirror.name", "x", 1),
        ]);
        let wanted = wanted(&source, &excluded);
        assert_eq!(wanted, here(&[("retention.ms", "60000")]));
        let current =
            here(&[("min.insync.replicas", "1"), ("cleanup.policy", "compact"), ("mirror.name", "m")]);
        let change = difference(&wanted, Some(&current), &excluded).unwrap();
        assert_eq!(change.set, here(&[("retention.ms", "60000")]));
        assert_eq!(change.unset, ["cleanup.policy"]);
    }

    #[test]
    fn a_source_that_does_not_tell_is_not_one_without_configs() {
        let mut result = source(&[]);
        assert_eq!(refusal(&result), None);
        result.error_code = ErrorCode::TopicAuthorizationFailed.code();
        assert_eq!(refusal(&result).as_deref(), Some("TOPIC_AUTHORIZATION_FAILED"));
    }

    #[test]
    fn equal_configs_make_no_change() {
        let excluded = default_settings();
        let same = here(&[("retention.ms", "1")]);
        assert_eq!(difference(&same, Some(&same), &excluded), None);
        assert_eq!(difference(&ConfigMap::new(), None, &excluded), None);
    }
}
