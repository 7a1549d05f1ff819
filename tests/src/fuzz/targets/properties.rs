//! Property files, and what daemons and mirrors read out of them.

use std::collections::BTreeMap;

use common::config::broker::{node_id_and_log_dirs, validate_broker_config};
use common::config::topic::validate_topic_config;
use common::config::{BrokerConfig, ControllerConfig, MirrorConfig, Properties};

use crate::fuzz::{Target, Trail, bound};

const BROKER: &str = "# a broker
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:9093
advertised.listeners=PLAINTEXT://host.example:9092
inter.broker.listener.name=INTERNAL
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:9094,2@h:9095
log.dirs=/data/a, /data/b
log.retention.hours : 12
log.segment.bytes 1073741824
compression.type = producer
message.timestamp.type=CreateTime
num.partitions=\\
    3
metrics.listener=127.0.0.1:9404
log.cleanup.policy=compact,delete
";

const CONTROLLER: &str = "node.id=2
process.roles=controller
listeners=CONTROLLER://0.0.0.0:9093
quorum.listener=127.0.0.1:9094
controller.quorum.voters=2@127.0.0.1:9094
log.dirs=/data
quorum.heartbeat.interval.ms=50
default.replication.factor=3
";

const MIRROR: &str = "bootstrap.servers=a:9092,b:9092
mirror.fetch.backoff.ms=1000
mirror.topic.properties.exclude=min\\\\.insync.*,unclean[.]leader.*
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"me\" password=\"it\\\\\"s\";
";

const TOPIC: &str = "cleanup.policy=compact\nretention.ms=-1\nmin.insync.replicas=2\nsegment.bytes=1048576
leader.replication.throttled.replicas=0:1,1:2
max.message.bytes=1000012\nunclean.leader.election.enable=true\ncompression.type=zstd\nmin.cleanable.dirty.ratio=0.5
";

const ESCAPES: &str = "a\\=b\\:c\\ d = x\\ty\\u00e9\\u0041\\\n   continued\\\\\n!comment\nempty\n=no key\n\\u20ac=\\n\r\nx=1\rz=2";

pub struct PropertyFiles;

impl Target for PropertyFiles {
    fn seeds(&self) -> Vec<Vec<u8>> {
        [BROKER, CONTROLLER, MIRROR, TOPIC, ESCAPES].iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        [
            "\\u",
            "\\uD800",
            "\\\n",
            "=",
            ":",
            " ",
            "\n",
            "\\\\",
            "//",
            "[::1]",
            "[",
            ",",
            ",,",
            "@",
            "999999",
            "-1",
            "1e308",
            "NaN",
            "\u{feff}",
            "\u{e9}",
            "listeners=",
            "log.dirs=",
            "node.id=",
            "broker.rack=",
            "log.retention.ms=",
            "(a*)*",
            "(?i)",
            "{1000}",
            "\\p{L}",
            "[^a]",
            "required",
            ";",
            "\"",
            "${env:X}",
            "0x10",
            "+1",
            "true",
            "0:1",
            "*",
            "PLAINTEXT://:0",
            "1@[::1]:1",
        ]
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect()
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        // A regular expression may take ten mebibytes when it is compiled.
        bound(32 << 20, 256, input)
    }

    fn longest_input_bytes(&self) -> usize {
        1200
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let text = String::from_utf8_lossy(input);
        let Some(properties) = trail.result(Properties::parse(&text)) else { return trail };
        trail.accept();
        // The file of one or the other: all at once would only take longer.
        let of_mirror = properties.get("bootstrap.servers").is_some();
        let warnings = if of_mirror {
            None
        } else if properties.get("quorum.listener").is_some() {
            trail.result(ControllerConfig::from_properties(&properties)).map(|(_, warnings)| warnings)
        } else {
            trail.result(BrokerConfig::from_properties(&properties)).map(|(_, warnings)| warnings)
        };
        trail.size(warnings.map_or(0, |warnings| warnings.len()));
        if input.len().is_multiple_of(4) {
            trail.result(node_id_and_log_dirs(&properties));
        }
        let mut values = BTreeMap::new();
        for (key, value) in properties.iter() {
            values.insert(key.to_owned(), value.to_owned());
            trail.result(validate_topic_config(key, value));
            trail.result(validate_broker_config(key, Some(value), true));
        }
        if of_mirror && let Some(mirror) = trail.result(MirrorConfig::from_values(&values)) {
            mirror.topic_properties_exclude.is_excluded("min.insync.replicas");
        }
        trail
    }
}
