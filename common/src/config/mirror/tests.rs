use super::*;

fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_least_is_an_address() {
    let config = MirrorConfig::from_values(&values(&[("bootstrap.servers", "a:1, [::1]:2")])).unwrap();
    assert_eq!(config.bootstrap_servers, [HostPort::new("a", 1), HostPort::new("::1", 2)]);
    assert_eq!(config.request_timeout_ms, 30_000);
    assert_eq!(config.fetch_response_max_bytes, 10 << 20);
    let error = MirrorConfig::from_values(&values(&[])).unwrap_err();
    assert!(error.to_string().contains("Missing required configuration bootstrap.servers"));
}

#[test]
fn nothing_that_reads_reaches_or_runs_passes() {
    for (key, value) in [
        ("ssl.truststore.location", "/etc/passwd"),
        ("sasl.login.class", "java.lang.Runtime"),
        ("sasl.oauthbearer.token.endpoint.url", "http://169.254.169.254/"),
        ("interceptor.classes", "x"),
        ("config.providers", "file"),
        ("mirror.name", "m"),
        ("bootstrap.servers", "http://a:1"),
        ("bootstrap.servers", "${env:HOST}:1"),
        ("bootstrap.servers", ""),
        ("bootstrap.servers", "a"),
        ("ssl.truststore.certificates", "/etc/ssl/ca.pem"),
        ("ssl.keystore.key", "file:/key"),
        ("ssl.truststore.type", "JKS"),
        ("mirror.topic.properties.exclude", "/etc"),
        ("mirror.topic.properties.exclude", "a(b"),
        ("mirror.topic.properties.exclude", "a)|(b"),
        ("mirror.topic.properties.exclude", "(a{1000}){1000}"),
        ("sasl.jaas.config", "com.evil.Module required;"),
        ("request.timeout.ms", "0"),
        ("security.protocol", "SASL_SSL"),
    ] {
        assert!(validate_mirror_config(key, value).is_err(), "{key}={value}");
    }
    let long = "a".repeat(MAX_VALUE_BYTES + 1);
    assert!(validate_mirror_config("bootstrap.servers", &long).is_err());
    assert!(
        validate_mirror_config("security.protocol", "SSL")
            .unwrap_err()
            .to_string()
            .contains("not yet supported")
    );
}

#[test]
fn secrets_are_known_and_never_shown() {
    let pem = "-----BEGIN CERTIFICATE-----\nMII//x\n-----END CERTIFICATE-----\n";
    assert_eq!(validate_mirror_config("ssl.truststore.certificates", pem), Ok(()));
    for key in ["sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "ssl.truststore.certificates"] {
        assert!(mirror_config_def(key).unwrap().sensitive, "{key}");
        let message = validate_mirror_config(key, "hunter2 ${x}").unwrap_err().to_string();
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn exclude_matches_whole_keys_and_always_the_mirrors_name() {
    let excluded = |list: Option<&str>, key: &str| {
        let mut all = values(&[("bootstrap.servers", "a:1")]);
        if let Some(list) = list {
            all.insert(TOPIC_PROPERTIES_EXCLUDE.to_owned(), list.to_owned());
        }
        MirrorConfig::from_values(&all).unwrap().topic_properties_exclude.is_excluded(key)
    };
    assert!(excluded(None, "min.insync.replicas"));
    assert!(!excluded(None, "retention.ms"));
    assert!(excluded(Some(".*throttled.*, retention.(ms|bytes)"), "leader.replication.throttled.replicas"));
    assert!(excluded(Some(".*throttled.*, retention.(ms|bytes)"), "retention.bytes"));
    assert!(!excluded(Some("retention"), "retention.ms"));
    assert!(!excluded(Some("retention.ms"), "min.insync.replicas"), "the list replaces the default");
    assert!(excluded(Some(""), "mirror.name"));
}
