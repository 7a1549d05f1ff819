use super::*;

fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn every_default_fits_its_definition_and_agrees_with_its_broker_key() {
    let file = Properties::new();
    let sources = TopicConfigSources { topic: None, broker: None, cluster: None, file: &file };
    for def in TOPIC_CONFIGS {
        if let Some(default) = def.default {
            def.validate(default).unwrap();
        }
        for (broker_key, _) in broker_synonyms(def.name) {
            assert!(find(BROKER_CONFIGS, broker_key).is_some(), "{broker_key} of {}", def.name);
        }
        assert_eq!(sources.resolve(def).value.as_deref(), def.default, "{}", def.name);
        assert!(def.documentation.len() > 20, "{}", def.name);
    }
    assert!(TOPIC_CONFIGS.is_sorted_by_key(|def| def.name));
    assert_eq!(TOPIC_CONFIGS.len(), 38);
}

#[test]
fn the_strongest_level_wins() {
    let file: Properties =
        [("log.retention.hours", "2"), ("message.max.bytes", "1000")].into_iter().collect();
    let cluster = values(&[("log.retention.ms", "3000"), ("message.max.bytes", "2000")]);
    let broker = values(&[("message.max.bytes", "3000")]);
    let topic = values(&[("max.message.bytes", "4000")]);
    let mut sources = TopicConfigSources { topic: None, broker: None, cluster: None, file: &file };
    let seen = |sources: &TopicConfigSources<'_>| {
        let config = TopicConfig::resolve(sources);
        (config.max_message_bytes, config.retention_ms)
    };
    assert_eq!(seen(&sources), (1000, 7_200_000));
    sources.cluster = Some(&cluster);
    assert_eq!(seen(&sources), (2000, 3000));
    sources.broker = Some(&broker);
    assert_eq!(seen(&sources), (3000, 3000));
    sources.topic = Some(&topic);
    assert_eq!(seen(&sources), (4000, 3000));

    let resolved = sources.resolve(topic_config_def("max.message.bytes").unwrap());
    let places: Vec<(&str, &str, i8)> =
        resolved.synonyms.iter().map(|s| (s.name.as_str(), s.value.as_str(), s.source.code())).collect();
    assert_eq!(
        places,
        [
            ("max.message.bytes", "4000", 1),
            ("message.max.bytes", "3000", 2),
            ("message.max.bytes", "2000", 3),
            ("message.max.bytes", "1000", 4),
            ("message.max.bytes", "1048588", 5),
        ]
    );
    assert_eq!(resolved.source, ConfigSource::Topic);
}

#[test]
fn units_of_time_are_converted_and_the_finer_one_wins() {
    let retention = |pairs: &[(&str, &str)]| {
        let file: Properties = pairs.iter().copied().collect();
        TopicConfig::defaults(&file).retention_ms
    };
    assert_eq!(retention(&[("log.retention.hours", "1"), ("log.retention.minutes", "1")]), 60_000);
    assert_eq!(retention(&[("log.retention.minutes", "1"), ("log.retention.ms", "7")]), 7);
    assert_eq!(retention(&[("log.retention.hours", "-1")]), -1);
    let file: Properties = [("log.roll.hours", "1"), ("log.roll.jitter.hours", "2")].into_iter().collect();
    let config = TopicConfig::defaults(&file);
    assert_eq!((config.segment_ms, config.segment_jitter_ms), (3_600_000, 7_200_000));
}

#[test]
fn a_stored_value_that_does_not_fit_counts_as_not_set() {
    let file = Properties::new();
    let topic = values(&[("retention.ms", "soon"), ("cleanup.policy", "compact,delete")]);
    let config = TopicConfig::resolve(&TopicConfigSources {
        topic: Some(&topic),
        broker: None,
        cluster: None,
        file: &file,
    });
    assert_eq!(config.retention_ms, 604_800_000);
    assert!(config.compact && config.delete);
}

#[test]
fn clients_cannot_set_what_is_unknown_unsupported_or_ours() {
    let message = |key, value| validate_topic_config(key, value).unwrap_err().to_string();
    assert_eq!(message("retention.m", "1"), "Unknown configuration retention.m; did you mean retention.ms?");
    assert_eq!(
        message("segment.bytes", "1000"),
        "Invalid value 1000 for configuration segment.bytes: allowed is an integer of at least 1048576"
    );
    assert!(message("compression.type", "zstd").contains("not yet supported"));
    assert!(message("compression.type", "brotli").contains("allowed is one of"));
    assert!(message("remote.storage.enable", "true").contains("not yet supported"));
    assert!(message("mirror.name", "m").contains("adding the topic to a mirror"));
    assert!(message("min.insync.replicas", "0").contains("at least 1"));
    assert_eq!(validate_topic_config("internal.segment.bytes", "100"), Ok(()));
    assert_eq!(validate_topic_config("retention.ms", "-1"), Ok(()));
}

#[test]
fn keys_that_depend_on_one_another_are_checked_together() {
    let file = Properties::new();
    let check = |pairs: &[(&str, &str)]| {
        let topic = values(pairs);
        validate_topic_configs(&TopicConfigSources {
            topic: Some(&topic),
            broker: None,
            cluster: None,
            file: &file,
        })
    };
    assert!(check(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]).is_err());
    assert!(check(&[("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "10")]).is_ok());
    assert!(check(&[("mirror.name", "m"), ("retention.ms", "1")]).is_ok());
}
