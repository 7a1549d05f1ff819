//! remove: the failover. It may be repeated, and more than one may run at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::messages::TopicName;
use protocol::mirror::remove_topics_from_mirror::{RemoveTopicsFromMirrorRequest, TopicState};
use protocol::{Request, Response};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::RemoveSelection;
use super::change::{check_topics, done, plural, text};
use super::gather::{DescribedPartition, describe_all};
use super::selection::Selection;
use super::wait::{Wanted, wait_until};
use crate::failure::Failure;
use crate::session::Session;
use crate::target::AnyTarget;
use crate::topic::unexpected;

/// How long a refusal may turn out to be of topics that are done: a controller knows of a release before
/// the partition's leader does.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The topics asked for, and those of them that are not writable yet.
#[derive(Debug, Default, PartialEq)]
struct Removal {
    names: Vec<String>,
    left: BTreeMap<String, Uuid>,
}

impl Removal {
    /// A topic whose partitions are all writable already is done, so that the command may be repeated.
    fn of(partitions: Vec<DescribedPartition>, chosen: &Selection) -> Removal {
        let mut removal = Removal::default();
        for partition in partitions.into_iter().filter(|partition| chosen.contains(&partition.topic)) {
            if removal.names.last() != Some(&partition.topic) {
                removal.names.push(partition.topic.clone());
            }
            if !partition.writable {
                removal.left.insert(partition.topic, partition.topic_id);
            }
        }
        removal
    }

    fn request(&self, mirror: &str) -> Request {
        let topics = self
            .left
            .iter()
            .map(|(name, topic_id)| TopicState { topic_id: *topic_id, topic_name: TopicName(text(name)) });
        let request = RemoveTopicsFromMirrorRequest { mirror_name: text(mirror), topics: topics.collect() };
        Request::RemoveTopicsFromMirror(request)
    }
}

pub async fn remove(target: AnyTarget, selection: RemoveSelection, wait: bool) -> Result<(), Failure> {
    let mirror = selection.mirror;
    let chosen = if selection.all { Selection::all() } else { Selection::new(&selection.topic)? };
    let mut session = Session::new(target.addresses()?, &target.common)?;
    let mut removal = Removal::of(describe_all(&mut session, Some(&mirror)).await?, &chosen);
    let names = std::mem::take(&mut removal.names);
    if names.is_empty() {
        return Err(Failure::refused(format!("no topic of mirror {mirror} matches")));
    }
    while !removal.left.is_empty() {
        match ask(&mut session, &mirror, &removal).await {
            Ok(()) => break,
            // One topic that is stopped already refuses the whole call, and another command, or this one's
            // unanswered first try, may have stopped it: the rest is still to be done.
            Err(Failure::Refused(why)) => {
                removal.left = fewer(&mut session, &mirror, &chosen, removal.left, why).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    if wait {
        wait_until(&mut session, &mirror, &names, Wanted::Writable, target.common.json).await?;
    }
    let count = names.len();
    done(
        &target,
        &format!("Removed {count} topic{} from mirror {mirror}.", plural(count)),
        json!({ "mirror": mirror, "removed": names }),
    )
}

async fn ask(session: &mut Session, mirror: &str, removal: &Removal) -> Result<(), Failure> {
    let what = format!("mirror {mirror}");
    let outcome = |response: &Response| match response {
        Response::RemoveTopicsFromMirror(response) => (response.error_code, response.error_message.clone()),
        _ => (0, None),
    };
    let response = session.change(&what, removal.request(mirror), outcome).await?;
    let Response::RemoveTopicsFromMirror(response) = response else { return Err(unexpected()) };
    check_topics(&what, response.error_code, response.error_message.as_deref(), &response.topics)
}

/// What is left of a refused removal, once that is less than before; else the refusal stands.
async fn fewer(
    session: &mut Session,
    mirror: &str,
    chosen: &Selection,
    left: BTreeMap<String, Uuid>,
    why: String,
) -> Result<BTreeMap<String, Uuid>, Failure> {
    let until = session.deadline().min(Instant::now() + SETTLES_WITHIN);
    loop {
        let mut now = Removal::of(describe_all(session, Some(mirror)).await?, chosen).left;
        // What came meanwhile was not asked for.
        now.retain(|topic, topic_id| left.get(topic) == Some(&*topic_id));
        if now.len() < left.len() {
            return Ok(now);
        }
        if Instant::now() >= until {
            return Err(Failure::refused(why));
        }
        sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(topic: &str, partition: i32, writable: bool) -> DescribedPartition {
        DescribedPartition {
            mirror: "m".to_owned(),
            topic: topic.to_owned(),
            topic_id: Uuid::from_u128(7),
            partition,
            source_offset: -1,
            destination_offset: -1,
            lag: -1,
            state: String::new(),
            reason: None,
            writable,
        }
    }

    #[test]
    fn a_topic_is_left_while_one_partition_is_not_writable() {
        let partitions = vec![
            partition("done", 0, true),
            partition("done", 1, true),
            partition("half", 0, true),
            partition("half", 1, false),
            partition("other", 0, false),
        ];
        let chosen = Selection::new(&["done|half".to_owned()]).unwrap();
        let removal = Removal::of(partitions, &chosen);
        assert_eq!(removal.names, ["done", "half"]);
        assert_eq!(removal.left.keys().collect::<Vec<_>>(), ["half"]);
    }
}
