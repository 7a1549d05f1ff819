//! ListSourceTopics: the source's topics whose whole name matches one of the patterns, asked with the
//! mirror's own credentials.

use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::TopicName;
use protocol::mirror::list_source_topics::SourceTopic;
use protocol::mirror::{ListSourceTopicsRequest, ListSourceTopicsResponse};
use regex::{Regex, RegexBuilder};

use crate::mirror::Mirroring;
use crate::mirror::source::SourceMetadata;

use super::{source_code, text};

/// A pattern may compile to this much.
const PATTERN_BYTES: usize = 1024 * 1024;
const MOST_PATTERNS: usize = 1_000;

pub async fn handle(
    mirroring: &Arc<Mirroring>,
    request: ListSourceTopicsRequest,
) -> ListSourceTopicsResponse {
    let refused = |code: ErrorCode, message: String| ListSourceTopicsResponse {
        error_code: code.code(),
        error_message: Some(text(message)),
        ..Default::default()
    };
    let patterns = match compile(request.patterns.iter().map(|pattern| pattern.as_str())) {
        Ok(patterns) => patterns,
        Err(message) => return refused(ErrorCode::InvalidRequest, message),
    };
    let mirror = request.mirror_name.to_string();
    let Some(client) = mirroring.manager.source(&mirror, &mirroring.cache.image()) else {
        return refused(ErrorCode::UnknownMirror, format!("there is no mirror '{mirror}'"));
    };
    // On the mirrors' own runtime: a hung source must not hold up this cluster's work.
    let listing = mirroring.runtime.spawn(async move { client.metadata(None).await }).await;
    match listing {
        Ok(Ok(listing)) => {
            ListSourceTopicsResponse { topics: matching(&listing, &patterns), ..Default::default() }
        }
        Ok(Err(failure)) => refused(source_code(&failure), failure.to_string()),
        Err(_) => refused(ErrorCode::UnknownServerError, "the listing was given up".to_owned()),
    }
}

fn compile<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<Vec<Regex>, String> {
    let mut compiled = Vec::new();
    for pattern in patterns {
        if compiled.len() == MOST_PATTERNS {
            return Err(format!("at most {MOST_PATTERNS} patterns"));
        }
        let whole = format!("^(?:{pattern})$");
        let regex = RegexBuilder::new(&whole).size_limit(PATTERN_BYTES).build();
        compiled.push(regex.map_err(|_| format!("'{pattern}' is not a usable regular expression"))?);
    }
    Ok(compiled)
}

/// In the order of their names. Topics that the source itself calls internal are never mirrored.
fn matching(listing: &SourceMetadata, patterns: &[Regex]) -> Vec<SourceTopic> {
    let matches = |name: &str| patterns.iter().any(|pattern| pattern.is_match(name));
    let found = listing.topics.values().filter(|topic| topic.error.is_none() && !topic.internal);
    let mut found: Vec<SourceTopic> = found
        .filter(|topic| matches(&topic.name))
        .map(|topic| SourceTopic {
            name: TopicName(text(&*topic.name)),
            topic_id: topic.id.unwrap_or(common::ids::TopicId::ZERO).0,
            partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
        })
        .collect();
    found.sort_by(|a, b| a.name.0.as_str().cmp(b.name.0.as_str()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::source::SourceTopic as Topic;

    #[test]
    fn patterns_match_whole_names_and_never_internal_topics() {
        let topic = |name: &str, internal| Topic {
            name: name.into(),
            id: None,
            internal,
            error: None,
            partitions: Default::default(),
        };
        let topics = [topic("orders", false), topic("orders.eu", false), topic("__consumer_offsets", true)];
        let listing = SourceMetadata {
            topics: topics.into_iter().map(|topic| (topic.name.clone(), topic)).collect(),
            ..Default::default()
        };
        let names = |patterns: &[&str]| {
            let patterns = compile(patterns.iter().copied()).unwrap();
            matching(&listing, &patterns).iter().map(|topic| topic.name.0.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["orders"]), ["orders"]);
        assert_eq!(names(&[".*"]), ["orders", "orders.eu"]);
        assert_eq!(names(&["none", "orders.*"]), ["orders", "orders.eu"]);
        assert!(compile(["("].into_iter()).is_err());
    }
}
