//! Cases 1, 2 and 3: CreateMirror.

use anyhow::{Result, bail};
use kagami_tests::cluster::ClusterSpec;
use protocol::mirror::list_mirrors::ListMirrorsRequest;
use protocol::{ErrorCode, Request, Response};

use crate::support::{MIRROR, MIRROR_RESOURCE, Side, TOPIC_RESOURCE};

const STATE_TOPIC: &str = "__mirror_state";

async fn names(side: &mut Side) -> Result<Vec<String>> {
    match side.call(Request::ListMirrors(ListMirrorsRequest::default()), |_| 0).await? {
        Response::ListMirrors(response) => {
            Ok(response.mirrors.into_iter().map(|mirror| mirror.mirror_name.to_string()).collect())
        }
        other => bail!("answered with {other:?}"),
    }
}

#[tokio::test]
async fn case_01_the_second_create_is_an_error_and_changes_nothing() -> Result<()> {
    let mut here = Side::start(ClusterSpec::new(1, 3)).await?;
    let first = [("bootstrap.servers", "127.0.0.1:19"), ("request.timeout.ms", "7000")];
    assert_eq!(here.try_create_mirror(Some(MIRROR), &first).await?.0, ErrorCode::None);
    let before = here.configs(MIRROR_RESOURCE, MIRROR, None).await?;
    let second = [("bootstrap.servers", "127.0.0.1:20"), ("request.timeout.ms", "8000")];
    assert_eq!(here.try_create_mirror(Some(MIRROR), &second).await?.0, ErrorCode::MirrorAlreadyExists);
    assert_eq!(here.configs(MIRROR_RESOURCE, MIRROR, None).await?, before);
    assert_eq!(before["bootstrap.servers"].as_deref(), Some("127.0.0.1:19"));
    assert_eq!(before["request.timeout.ms"].as_deref(), Some("7000"));
    assert_eq!(names(&mut here).await?, [MIRROR]);

    // Created with the first mirror, as the controller's properties say.
    here.client.await_leaders(STATE_TOPIC, 3).await?;
    let topics = here.client.metadata(None).await?.topics;
    let state_topics: Vec<_> = topics
        .iter()
        .filter(|topic| topic.name.as_ref().is_some_and(|name| &**name == STATE_TOPIC))
        .collect();
    assert_eq!(state_topics.len(), 1);
    assert!(state_topics[0].is_internal);
    assert_eq!(state_topics[0].partitions[0].replica_nodes.len(), 3);
    let configs = here.configs(TOPIC_RESOURCE, STATE_TOPIC, None).await?;
    assert_eq!(configs["cleanup.policy"].as_deref(), Some("compact"));
    assert_eq!(configs["min.insync.replicas"].as_deref(), Some("2"));
    Ok(())
}

#[tokio::test]
async fn case_02_bad_names_are_refused_and_case_03_so_is_a_mirror_without_a_source() -> Result<()> {
    let mut here = Side::start(ClusterSpec::new(1, 1)).await?;
    let source = [("bootstrap.servers", "127.0.0.1:19")];
    let long = "x".repeat(250);
    for name in [Some("a.removed"), Some(""), Some(&*long), Some("a:b"), Some(".."), None] {
        let (code, message) = here.try_create_mirror(name, &source).await?;
        assert_eq!(code, ErrorCode::InvalidMirrorName, "{name:?}: {message:?}");
        assert!(message.is_some(), "{name:?} is refused without a word");
    }
    let bad: [&[(&str, &str)]; 5] = [
        &[],
        &[("bootstrap.servers", "")],
        &[("bootstrap.servers", "no-port")],
        &[("bootstrap.servers", "127.0.0.1:19"), ("request.timeout.ms", "soon")],
        &[("bootstrap.servers", "127.0.0.1:19"), ("ssl.truststore.location", "/etc/passwd")],
    ];
    for configs in bad {
        let (code, message) = here.try_create_mirror(Some(MIRROR), configs).await?;
        assert!(
            matches!(code, ErrorCode::InvalidRequest | ErrorCode::InvalidConfig),
            "{configs:?}: {} {message:?}",
            code.name()
        );
        assert!(message.is_some(), "{configs:?} is refused without a word");
    }
    assert_eq!(here.try_create_mirror(Some(MIRROR), &[]).await?.0, ErrorCode::InvalidRequest, "case 3");
    assert_eq!(names(&mut here).await?, Vec::<String>::new());
    Ok(())
}
