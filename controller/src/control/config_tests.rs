use super::*;
use crate::control::testing::*;
use common::ids::*;

fn image() -> MetadataImage {
    let mut image = with_brokers(&[1, 2]);
    add_topic(&mut image, "t", topic_id(1), vec![registration(&[1, 2], &[1, 2], Some(1))]);
    add_mirror(&mut image, "m", None);
    set_config(&mut image, ConfigResourceType::Mirror, "m", BOOTSTRAP_SERVERS_CONFIG, Some("s:1"));
    image
}

fn incremental(
    image: &MetadataImage,
    resource_type: i8,
    name: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> Result<Vec<MetadataRecord>, ErrorCode> {
    let changes = changes
        .iter()
        .map(|(key, operation, value)| Change {
            key: (*key).to_owned(),
            operation: *operation,
            value: value.map(str::to_owned),
        })
        .collect();
    let resource = AlterResource { resource_type, name: name.to_owned(), changes };
    let result = incremental_alter(image, &settings(), &[resource], false);
    result.response[0].clone().map(|()| result.records).map_err(|error| error.code)
}

fn value(image: &MetadataImage, resource_type: ConfigResourceType, name: &str, key: &str) -> Option<String> {
    image.config(resource_type, name).and_then(|map| map.get(key).cloned())
}

#[test]
fn set_delete_append_subtract() {
    let mut image = image();
    let mut run = |changes: &[(&str, i8, Option<&str>)]| {
        let records = incremental(&image, 2, "t", changes).unwrap();
        replay(&mut image, records);
        value(&image, ConfigResourceType::Topic, "t", "cleanup.policy")
    };
    assert_eq!(run(&[("cleanup.policy", APPEND, Some("compact"))]).as_deref(), Some("delete,compact"));
    assert_eq!(run(&[("cleanup.policy", SUBTRACT, Some("delete"))]).as_deref(), Some("compact"));
    assert_eq!(run(&[("cleanup.policy", SET, Some("delete"))]).as_deref(), Some("delete"));
    assert_eq!(run(&[("cleanup.policy", DELETE, None), ("retention.ms", SET, Some("5"))]), None);
    assert_eq!(incremental(&image, 2, "t", &[("retention.ms", SET, Some("5"))]).unwrap(), vec![]);
}

#[test]
fn refusals_of_incremental_alter() {
    let image = image();
    type Asked = (&'static str, i8, Option<&'static str>);
    let cases: Vec<(i8, &str, Asked, ErrorCode)> = vec![
        (2, "u", ("retention.ms", SET, Some("5")), ErrorCode::UnknownTopicOrPartition),
        (2, "t", ("retention.ms", SET, Some("x")), ErrorCode::InvalidConfig),
        (2, "t", ("retention.ms", SET, None), ErrorCode::InvalidRequest),
        (2, "t", ("retention.ms", APPEND, Some("5")), ErrorCode::InvalidConfig),
        (2, "t", ("retention.ms", 9, Some("5")), ErrorCode::InvalidRequest),
        (2, "t", ("no.such.key", SET, Some("5")), ErrorCode::InvalidConfig),
        (2, "t", ("mirror.name", SET, Some("m")), ErrorCode::InvalidRequest),
        (2, "t", ("mirror.name", DELETE, None), ErrorCode::InvalidRequest),
        (4, "x", ("log.retention.ms", SET, Some("5")), ErrorCode::InvalidRequest),
        (4, "", ("node.id", SET, Some("5")), ErrorCode::InvalidRequest),
        (8, "1", ("log", SET, Some("5")), ErrorCode::InvalidRequest),
        (64, "n", ("request.timeout.ms", SET, Some("5")), ErrorCode::UnknownMirror),
        (64, "m", ("bootstrap.servers", DELETE, None), ErrorCode::InvalidRequest),
        (64, "m", ("no.such.key", SET, Some("5")), ErrorCode::InvalidConfig),
    ];
    for (resource_type, name, change, expected) in cases {
        assert_eq!(
            incremental(&image, resource_type, name, &[change]).unwrap_err(),
            expected,
            "{name} {change:?}"
        );
    }
    let twice = [("retention.ms", SET, Some("5")), ("retention.ms", SET, Some("6"))];
    assert_eq!(incremental(&image, 2, "t", &twice).unwrap_err(), ErrorCode::InvalidRequest);
}

#[test]
fn one_bad_resource_leaves_the_others_and_a_bad_key_the_whole_resource() {
    let image = image();
    let change = |key: &str, value: &str| Change {
        key: key.to_owned(),
        operation: SET,
        value: Some(value.to_owned()),
    };
    let resources = [
        AlterResource {
            resource_type: 2,
            name: "t".to_owned(),
            changes: vec![change("retention.ms", "5"), change("segment.bytes", "x")],
        },
        AlterResource {
            resource_type: 4,
            name: String::new(),
            changes: vec![change("log.retention.ms", "5")],
        },
    ];
    let result = incremental_alter(&image, &settings(), &resources, false);
    assert!(result.response[0].is_err() && result.response[1].is_ok());
    assert_eq!(result.records.len(), 1);
    assert_eq!(incremental_alter(&image, &settings(), &resources, true).records, vec![]);
}

#[test]
fn legacy_alter_replaces_all_but_the_mirror_name() {
    let mut image = image();
    set_config(&mut image, ConfigResourceType::Topic, "t", "retention.ms", Some("5"));
    set_mirror_name(&mut image, "t", "m");
    let resource = |changes: Vec<(&str, &str)>| AlterResource {
        resource_type: 2,
        name: "t".to_owned(),
        changes: changes.into_iter().map(|(k, v)| (k.to_owned(), Some(v.to_owned()))).collect(),
    };
    let result = legacy_alter(&image, &settings(), &[resource(vec![("segment.bytes", "1048576")])], false);
    assert!(result.response[0].is_ok());
    replay(&mut image, result.records);
    let map = image.config(ConfigResourceType::Topic, "t").unwrap();
    assert_eq!(map.keys().collect::<Vec<_>>(), vec!["mirror.name", "segment.bytes"]);
    let refused = legacy_alter(&image, &settings(), &[resource(vec![("mirror.name", "x")])], false);
    assert_eq!(refused.response[0].as_ref().unwrap_err().code, ErrorCode::InvalidRequest);
}

#[test]
fn allowing_unclean_elections_elects_at_once() {
    let mut image = with_brokers(&[2]);
    let mut lost = registration(&[1, 2], &[], None);
    lost.elr = ids(&[1]);
    add_topic(&mut image, "t", topic_id(1), vec![lost]);
    let records =
        incremental(&image, 2, "t", &[("unclean.leader.election.enable", SET, Some("true"))]).unwrap();
    replay(&mut image, records);
    let id = TopicIdPartition::new(topic_id(1), 0);
    assert_eq!(image.partition(id).unwrap().registration.leader, Some(BrokerId(2)));
}
