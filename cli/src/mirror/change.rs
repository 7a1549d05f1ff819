//! create, alter and add.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::config::properties::Properties;
use protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use protocol::messages::{IncrementalAlterConfigsRequest, TopicName};
use protocol::mirror::add_topics_to_mirror::{AddTopicsToMirrorRequest, TopicResult, TopicState};
use protocol::mirror::create_mirror::{CreateMirrorRequest, MirrorConfig};
use protocol::mirror::list_source_topics::{ListSourceTopicsRequest, SourceTopic};
use protocol::{ErrorCode, Request, Response, StrBytes};
use serde_json::json;
use uuid::Uuid;

use super::selection::{Selection, is_literal};
use super::wait::{Wanted, wait_until};
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::target::AnyTarget;
use crate::topic::{key_values, unexpected};

const MIRROR_RESOURCE: i8 = 64;
/// Topics named in a message.
const NAMED: usize = 10;
const SET: i8 = 0;
const DELETE: i8 = 1;

/// Kafka's file-based keys, and the inline ones (KIP-651) that carry the file's content instead.
const INLINED: [(&str, &str); 2] = [
    ("ssl.truststore.location", "ssl.truststore.certificates"),
    ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
];

pub(super) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub async fn create(
    target: AnyTarget,
    mirror: String,
    source: String,
    mirror_config: Option<PathBuf>,
    configs: Vec<String>,
) -> Result<(), Failure> {
    let mut settings = match &mirror_config {
        Some(path) => read_mirror_config(path)?,
        None => BTreeMap::new(),
    };
    settings.extend(key_values(&configs)?);
    settings.insert("bootstrap.servers".to_owned(), source);
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let config =
        settings.iter().map(|(name, value)| MirrorConfig { name: text(name), value: Some(text(value)) });
    let request = CreateMirrorRequest { mirror_name: Some(text(&mirror)), config: config.collect() };
    let what = format!("mirror {mirror}");
    let outcome = |response: &Response| match response {
        Response::CreateMirror(response) => (response.error_code, response.error_message.clone()),
        _ => (0, None),
    };
    let response = session.change(&what, Request::CreateMirror(request), outcome).await?;
    let Response::CreateMirror(response) = response else { return Err(unexpected()) };
    check(&what, response.error_code, response.error_message.as_deref())?;
    done(&target, &format!("Created mirror {mirror}."), json!({ "mirror": mirror, "created": true }))
}

/// The properties of the file; a file that one of them names is read here and sent inline, since no path
/// of this machine means anything to a broker.
fn read_mirror_config(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let properties =
        Properties::load(path).map_err(|error| Failure::usage(format!("--mirror-config: {error}")))?;
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in properties.iter() {
        match INLINED.iter().find(|(file_key, _)| *file_key == key) {
            Some((_, inline_key)) => {
                let content = std::fs::read_to_string(value)
                    .map_err(|error| Failure::usage(format!("--mirror-config: {key}={value}: {error}")))?;
                settings.insert((*inline_key).to_owned(), content);
            }
            None => {
                settings.insert(key.to_owned(), value.to_owned());
            }
        }
    }
    Ok(settings)
}

pub async fn alter(target: AnyTarget, mirror: String, configs: Vec<String>) -> Result<(), Failure> {
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let configs = key_values(&configs)?.into_iter().map(|(key, value)| {
        let operation = if value.is_empty() { DELETE } else { SET };
        AlterableConfig::default()
            .with_name(text(&key))
            .with_config_operation(operation)
            .with_value((operation == SET).then(|| text(&value)))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(MIRROR_RESOURCE)
        .with_resource_name(text(&mirror))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let what = format!("mirror {mirror}");
    let outcome = |response: &Response| match response {
        Response::IncrementalAlterConfigs(response) => response
            .responses
            .first()
            .map_or((0, None), |result| (result.error_code, result.error_message.clone())),
        _ => (0, None),
    };
    let response = session.change(&what, Request::IncrementalAlterConfigs(request), outcome).await?;
    let Response::IncrementalAlterConfigs(response) = response else { return Err(unexpected()) };
    let result = response.responses.first().ok_or_else(unexpected)?;
    check(&what, result.error_code, result.error_message.as_deref())?;
    done(&target, &format!("Altered mirror {mirror}."), json!({ "mirror": mirror, "altered": true }))
}

pub async fn add(
    target: AnyTarget,
    mirror: String,
    patterns: Vec<String>,
    wait: bool,
    recopy: bool,
) -> Result<(), Failure> {
    let selection = Selection::new(&patterns)?;
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let chosen: Vec<(String, Uuid)> = if session.are_controllers() {
        // Only brokers speak to sources.
        if let Some(pattern) = patterns.iter().find(|pattern| !is_literal(pattern)) {
            return Err(Failure::usage(format!(
                "--topic {pattern:?}: brokers resolve expressions; with --bootstrap-controller give whole topic names"
            )));
        }
        patterns.iter().map(|name| (name.clone(), Uuid::nil())).collect()
    } else {
        let topics = source_topics(&mut session, &mirror, &patterns).await?;
        let topics = topics.into_iter().map(|topic| (topic.name.to_string(), topic.topic_id));
        topics.filter(|(name, _)| selection.contains(name)).collect()
    };
    if chosen.is_empty() {
        return Err(Failure::refused(format!(
            "no topic at the source of {mirror} matches {}",
            patterns.join(", ")
        )));
    }
    let topics = chosen.iter().map(|(name, topic_id)| TopicState {
        topic_id: *topic_id,
        topic_name: TopicName(text(name)),
        mirror_name: Some(text(&mirror)),
    });
    let request = AddTopicsToMirrorRequest { topics: topics.collect(), recopy };
    let what = format!("mirror {mirror}");
    let outcome = |response: &Response| match response {
        Response::AddTopicsToMirror(response) => (response.error_code, response.error_message.clone()),
        _ => (0, None),
    };
    let response = session.change(&what, Request::AddTopicsToMirror(request), outcome).await?;
    let Response::AddTopicsToMirror(response) = response else { return Err(unexpected()) };
    check_topics(&what, response.error_code, response.error_message.as_deref(), &response.topics)?;
    let names: Vec<String> = chosen.into_iter().map(|(name, _)| name).collect();
    if wait {
        wait_until(&mut session, &mirror, &names, Wanted::Mirroring, target.common.json).await?;
    }
    let count = names.len();
    done(
        &target,
        &format!("Added {count} topic{} to mirror {mirror}.", plural(count)),
        json!({ "mirror": mirror, "added": names }),
    )
}

async fn source_topics(
    session: &mut Session,
    mirror: &str,
    patterns: &[String],
) -> Result<Vec<SourceTopic>, Failure> {
    let request = ListSourceTopicsRequest {
        mirror_name: text(mirror),
        patterns: patterns.iter().map(|pattern| text(pattern)).collect(),
    };
    let error_of = |response: &Response| match response {
        Response::ListSourceTopics(response) => response.error_code,
        _ => 0,
    };
    let response = session.call(Request::ListSourceTopics(request), error_of).await?;
    let Response::ListSourceTopics(response) = response else { return Err(unexpected()) };
    check(&format!("source of mirror {mirror}"), response.error_code, response.error_message.as_deref())?;
    Ok(response.topics)
}

pub(super) fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

pub(super) fn check(what: &str, code: i16, message: Option<&str>) -> Result<(), Failure> {
    if code == ErrorCode::None.code() { Ok(()) } else { Err(Failure::code(what, code, message)) }
}

/// The topics that caused the head's error. Those that only shared the request with them say nothing: with an
/// expression they may be thousands.
pub(super) fn check_topics(
    what: &str,
    code: i16,
    message: Option<&str>,
    topics: &[TopicResult],
) -> Result<(), Failure> {
    let innocent = [ErrorCode::None.code(), ErrorCode::OperationNotAttempted.code()];
    let refused: Vec<String> = topics
        .iter()
        .filter(|topic| !innocent.contains(&topic.error_code))
        .map(|topic| {
            let name = topic.topic_name.to_string();
            Failure::code(&name, topic.error_code, topic.error_message.as_deref()).to_string()
        })
        .collect();
    if refused.is_empty() {
        return check(what, code, message);
    }
    let more = refused.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let shown = refused[..refused.len().min(NAMED)].join("; ");
    Err(Failure::refused(format!("{what}: nothing was changed: {shown}{more}")))
}

pub(super) fn done(target: &AnyTarget, line: &str, value: serde_json::Value) -> Result<(), Failure> {
    if target.common.json {
        return output::print_json(&value);
    }
    println!("{line}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, code: ErrorCode) -> TopicResult {
        let topic_name = TopicName(text(name));
        TopicResult { topic_name, error_code: code.code(), ..Default::default() }
    }

    #[test]
    fn a_refusal_names_the_topics_that_caused_it_and_not_the_others() {
        let mut topics: Vec<TopicResult> =
            (0..2_000).map(|n| result(&format!("innocent-{n}"), ErrorCode::OperationNotAttempted)).collect();
        topics.push(result("guilty", ErrorCode::InconsistentTopicId));
        let code = ErrorCode::InconsistentTopicId.code();
        let failure = check_topics("mirror m", code, None, &topics).unwrap_err();
        assert_eq!(failure.to_string(), "mirror m: nothing was changed: guilty: INCONSISTENT_TOPIC_ID");
        let all: Vec<TopicResult> =
            (0..2_000).map(|n| result(&format!("t-{n}"), ErrorCode::InvalidRequest)).collect();
        let failure = check_topics("mirror m", code, None, &all).unwrap_err().to_string();
        assert!(failure.ends_with("and 1990 more") && failure.len() < 1_000, "{failure}");
        assert!(check_topics("mirror m", 0, None, &[result("t", ErrorCode::None)]).is_ok());
        assert!(check_topics("mirror m", code, Some("why"), &[]).is_err());
    }
}
