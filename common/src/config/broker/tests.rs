use super::*;

fn minimal() -> Properties {
    [("node.id", "1"), ("controller.quorum.voters", "10@c:1"), ("log.dirs", "/data")].into_iter().collect()
}

fn with(pairs: &[(&str, &str)]) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
    let mut properties = minimal();
    for (key, value) in pairs {
        properties.set(*key, *value);
    }
    BrokerConfig::from_properties(&properties)
}

fn message(pairs: &[(&str, &str)]) -> String {
    with(pairs).unwrap_err().to_string()
}

#[test]
fn the_least_file_gives_kafkas_defaults() {
    let (config, warnings) = with(&[]).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.node_id, BrokerId(1));
    assert_eq!(config.listeners.iter().map(ToString::to_string).collect::<Vec<_>>(), ["PLAINTEXT://:9092"]);
    assert_eq!(config.advertised_listeners, config.listeners);
    assert_eq!(config.inter_broker_endpoint(), config.listeners.first());
    assert_eq!(config.broker_heartbeat_interval_ms, 2000);
    assert_eq!(config.broker_session_timeout_ms, 9000);
    assert_eq!(config.replica_lag_time_max_ms, 30_000);
    assert_eq!(config.socket_request_max_bytes, 100 << 20);
    assert_eq!(config.queued_max_request_bytes, 256 << 20);
    assert_eq!(config.message_max_bytes, 1_048_588);
    assert_eq!(config.topic_defaults.retention_ms, 604_800_000);
    assert_eq!(config.mirror_metadata_refresh_interval_ms, 5000);
    assert_eq!(config.idle_timeout(), Duration::from_secs(600));
}

#[test]
fn every_default_of_a_key_fits_its_definition() {
    for def in BROKER_CONFIGS.iter().chain(CONTROLLER_CONFIGS) {
        if let Some(default) = def.default {
            assert_eq!(def.validate(default), Ok(()), "{}", def.name);
        }
        assert!(!def.documentation.is_empty(), "{}", def.name);
    }
}

#[test]
fn unknown_keys_warn_and_known_ones_do_not() {
    let (_, warnings) = with(&[
        ("num.partition", "3"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("offsets.topic.replication.factor", "1"),
        ("quorum.listener", "c:1"),
        ("listener.name.inner.ssl.keystore.type", "PEM"),
    ])
    .unwrap();
    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["unknown configuration num.partition is ignored; did you mean num.partitions?"]);
}

#[test]
fn wrong_values_are_refused_with_key_value_and_range() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("num.partitions", "0")], "Invalid value 0 for configuration num.partitions: allowed is"),
        (&[("auto.create.topics.enable", "yes")], "allowed is true or false"),
        (&[("node.id", "-1")], "at least 0"),
        (&[("broker.id", "2")], "node.id is 1"),
        (&[("process.roles", "broker,controller")], "this process is a broker and only that"),
        (&[("log.dirs", "/a,/a")], "different directories"),
        (&[("controller.quorum.voters", "c:1")], "id@host:port"),
        (&[("listeners", "SSL://:9093")], "not yet supported"),
        (&[("listeners", "CONTROLLER://:9093")], "no controller listener"),
        (&[("advertised.listeners", "PLAINTEXT://0.0.0.0:1")], "clients cannot connect"),
        (
            &[
                ("advertised.listeners", "OTHER://h:1"),
                ("listener.security.protocol.map", "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
            ],
            "none of that name",
        ),
        (&[("inter.broker.listener.name", "INNER")], "advertised.listeners has none"),
        (&[("queued.max.request.bytes", "1000")], "socket.request.max.bytes"),
        (&[("replica.fetch.wait.max.ms", "40000")], "replica.lag.time.max.ms"),
        (&[("broker.heartbeat.interval.ms", "9000")], "broker.session.timeout.ms"),
        (&[("compression.type", "gzip")], "not yet supported"),
        (
            &[("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")],
            "not yet supported",
        ),
        (&[("remote.log.storage.system.enable", "true")], "not yet supported"),
        (&[("log.retention.ms", "soon")], "log.retention.ms"),
        (&[("metrics.listener", "9100")], "allowed is host:port"),
        (&[("log.segment.bytes", "1048575")], "at least 1048576"),
    ];
    for (pairs, expected) in cases {
        let message = message(pairs);
        assert!(message.contains(expected), "{pairs:?}: {message}");
    }
    let mut properties = minimal();
    properties.remove("node.id");
    let error = BrokerConfig::from_properties(&properties).unwrap_err();
    assert!(error.to_string().contains("Missing required configuration node.id"), "{error}");
}

#[test]
fn dynamic_values_lie_over_the_file_and_leave_static_keys_alone() {
    let (config, _) = with(&[("message.max.bytes", "1000"), ("log.cleaner.backoff.ms", "2")]).unwrap();
    let values = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let cluster =
        values(&[("message.max.bytes", "2000"), ("log.cleaner.backoff.ms", "3"), ("log.dirs", "/evil")]);
    let broker = values(&[("log.cleaner.backoff.ms", "4"), ("min.insync.replicas", "0")]);
    let changed = config.with_dynamic(Some(&broker), Some(&cluster)).unwrap();
    assert_eq!((changed.message_max_bytes, changed.log_cleaner_backoff_ms), (2000, 4));
    assert_eq!(changed.min_insync_replicas, 1);
    assert_eq!(changed.log_dirs, config.log_dirs);
    assert_eq!(changed.with_dynamic(None, None).unwrap(), config);
}

#[test]
fn only_dynamic_keys_change_at_run_time() {
    assert_eq!(validate_broker_config("log.retention.ms", Some("1"), false), Ok(()));
    assert_eq!(validate_broker_config("log.retention.ms", None, true), Ok(()));
    for (key, value, per_broker) in [
        ("log.retention.ms", "soon", true),
        ("log.dirs", "/x", true),
        ("listeners", "PLAINTEXT://:1", true),
        ("sasl.jaas.config", "x", true),
        ("nonsense", "1", true),
        // Settled as the broker starts: taking them would promise what does not happen.
        ("max.connections", "1", false),
        ("max.connections.per.ip", "1", true),
        ("num.recovery.threads.per.data.dir", "1", false),
        ("num.replica.fetchers", "2", false),
        ("producer.id.expiration.ms", "1", false),
        ("log.cleaner.threads", "2", false),
        ("mirror.num.replica.fetchers", "2", false),
        ("mirror.metadata.refresh.interval.ms", "1000", false),
        ("mirror.failed.retry.initial.backoff.ms", "1000", false),
        ("mirror.failed.retry.max.backoff.ms", "1000", false),
    ] {
        assert!(validate_broker_config(key, Some(value), per_broker).is_err(), "{key}");
    }
}
