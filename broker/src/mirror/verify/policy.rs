//! How both sides of a topic clean their logs, brokers' defaults included.

use std::sync::Arc;

use protocol::messages::describe_configs_response::DescribeConfigsResult;
use protocol::{Request, Response};

use crate::mirror::source::SourceClient;
use crate::mirror::sync::configs;

use super::compaction::CompactionRules;

/// Of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningPolicy {
    /// Now or, as far as it can tell, ever.
    pub compacts: bool,
    pub delete_retention_ms: Option<i64>,
}

/// Rules for a comparison, if either side compacts: what one side has dropped, the other lacks.
pub fn rules(here: CleaningPolicy, source: CleaningPolicy, now_ms: i64) -> Option<CompactionRules> {
    if !here.compacts && !source.compacts {
        return None;
    }
    let retentions = [here.delete_retention_ms, source.delete_retention_ms];
    let delete_retention_ms = retentions.into_iter().flatten().min().unwrap_or(0);
    Some(CompactionRules { now_ms, delete_retention_ms })
}

/// The source's policy. One that it does not tell (no permission to describe configs) is taken for ours.
pub async fn of_source(client: &SourceClient, topic: &Arc<str>) -> CleaningPolicy {
    let request = Request::DescribeConfigs(configs::request(std::slice::from_ref(topic)));
    match client.call(request).await {
        Ok((Response::DescribeConfigs(answer), _)) => {
            answer.results.iter().find(|result| result.error_code == 0).map(told).unwrap_or_default()
        }
        _ => CleaningPolicy::default(),
    }
}

/// Values in force, whether set on the topic or by default.
fn told(result: &DescribeConfigsResult) -> CleaningPolicy {
    let value = |key: &str| {
        let entry = result.configs.iter().find(|entry| &*entry.name == key)?;
        entry.value.as_ref().map(|value| value.to_string())
    };
    CleaningPolicy {
        compacts: value("cleanup.policy")
            .is_some_and(|policy| policy.split(',').any(|policy| policy.trim() == "compact")),
        delete_retention_ms: value("delete.retention.ms").and_then(|value| value.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::sync::configs::tests::source as described;

    #[test]
    fn a_default_of_the_broker_counts_like_a_config_of_the_topic() {
        for source in [1, 4, 5] {
            let policy = told(&described(&[
                ("cleanup.policy", "compact,delete", source),
                ("delete.retention.ms", "50", source),
            ]));
            assert_eq!(policy, CleaningPolicy { compacts: true, delete_retention_ms: Some(50) });
        }
        assert!(!told(&described(&[("cleanup.policy", "delete", 5)])).compacts);
    }

    #[test]
    fn either_side_is_reason_enough_and_the_shorter_retention_counts() {
        let plain = CleaningPolicy { compacts: false, delete_retention_ms: Some(90) };
        let compacting = CleaningPolicy { compacts: true, delete_retention_ms: Some(50) };
        assert_eq!(rules(plain, plain, 7), None);
        let expected = Some(CompactionRules { now_ms: 7, delete_retention_ms: 50 });
        assert_eq!(rules(plain, compacting, 7), expected);
        assert_eq!(rules(compacting, CleaningPolicy::default(), 7), expected);
    }
}
