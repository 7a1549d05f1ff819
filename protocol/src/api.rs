//! The table of APIs: key, versions, who serves it. The one place that knows which number is what.

/// No version of the API is flexible.
const NEVER: i16 = i16::MAX;

/// How our own client software names itself in ApiVersions. CreateTopics 8 is shown to it alone:
/// another version 8 may come upstream.
pub const CLIENT_SOFTWARE_NAME: &str = "kagami";

/// Highest version of CreateTopics that is Kafka's.
const CREATE_TOPICS_KAFKA_MAX_VERSION: i16 = 7;

macro_rules! apis {
    ($(
        $name:ident = $code:literal, flexible $flexible:expr, $min:literal..=$max:literal, $how:ident $what:tt;
    )*) => {
        /// All of Kafka 4.4's APIs, and ours.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ApiKey {
            $($name = $code,)*
        }

        impl ApiKey {
            pub fn from_code(code: i16) -> Option<ApiKey> {
                match code {
                    $($code => Some(ApiKey::$name),)*
                    _ => None,
                }
            }

            pub fn spec(self) -> &'static ApiSpec {
                match self {
                    $(ApiKey::$name => {
                        const SPEC: ApiSpec = {
                            let (broker, controller, forwarded, not_served) = apis!(@how $how $what);
                            ApiSpec {
                                key: ApiKey::$name,
                                name: stringify!($name),
                                min_version: $min,
                                max_version: $max,
                                first_flexible: $flexible,
                                broker,
                                controller,
                                forwarded,
                                not_served,
                            }
                        };
                        &SPEC
                    })*
                }
            }

            /// In the order of their codes.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$name,)*];
        }
    };
    (@how broker answered) => { (true, false, false, None) };
    (@how broker forwarded) => { (true, false, true, None) };
    (@how controller answered) => { (false, true, false, None) };
    (@how both answered) => { (true, true, false, None) };
    (@how both forwarded) => { (true, true, true, None) };
    (@how not_served $why:literal) => { (false, false, false, Some($why)) };
}

/// What we do with one API.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiSpec {
    pub key: ApiKey,
    pub name: &'static str,
    /// The versions that we speak, on either side of a connection; none where the highest is below
    /// the lowest.
    pub min_version: i16,
    pub max_version: i16,
    /// From this version on headers and bodies are flexible (KIP-482).
    first_flexible: i16,
    /// Served on a broker's listeners.
    pub broker: bool,
    /// Served on a controller's listener.
    pub controller: bool,
    /// A broker sends it on to the active controller.
    pub forwarded: bool,
    /// Why nobody serves it.
    pub not_served: Option<&'static str>,
}

impl ApiSpec {
    pub fn is_flexible(&self, version: i16) -> bool {
        self.first_flexible != NEVER && version >= self.first_flexible
    }

    /// Whether we can encode and decode this version.
    pub fn supports(&self, version: i16) -> bool {
        (self.min_version..=self.max_version).contains(&version)
    }

    /// The highest version that ApiVersions shows to a client of this software name.
    pub fn advertised_max_version(&self, client_software_name: Option<&str>) -> i16 {
        match self.key {
            ApiKey::CreateTopics if client_software_name != Some(CLIENT_SOFTWARE_NAME) => {
                CREATE_TOPICS_KAFKA_MAX_VERSION
            }
            _ => self.max_version,
        }
    }

    /// 2 carries tagged fields.
    pub fn request_header_version(&self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// 1 carries tagged fields. ApiVersions always has 0, so that a client can read the answer to a
    /// version that the server doesn't know.
    pub fn response_header_version(&self, version: i16) -> i16 {
        if self.is_flexible(version) && self.key != ApiKey::ApiVersions { 1 } else { 0 }
    }
}

impl ApiKey {
    pub fn code(self) -> i16 {
        self as i16
    }

    pub fn name(self) -> &'static str {
        self.spec().name
    }

    pub fn is_flexible(self, version: i16) -> bool {
        self.spec().is_flexible(version)
    }
}

/// The row of a key, `None` for keys that neither Kafka 4.4 nor we know: they close the connection.
pub fn spec(code: i16) -> Option<&'static ApiSpec> {
    ApiKey::from_code(code).map(ApiKey::spec)
}

pub fn is_flexible(key: ApiKey, version: i16) -> bool {
    key.is_flexible(version)
}

/// What a broker serves, in the order of the keys.
pub fn served_by_broker() -> impl Iterator<Item = &'static ApiSpec> {
    ApiKey::ALL.iter().map(|key| key.spec()).filter(|spec| spec.broker)
}

/// What a controller serves, in the order of the keys.
pub fn served_by_controller() -> impl Iterator<Item = &'static ApiSpec> {
    ApiKey::ALL.iter().map(|key| key.spec()).filter(|spec| spec.controller)
}

apis! {
    Produce = 0, flexible 9, 3..=13, broker answered;
    Fetch = 1, flexible 12, 4..=18, broker answered;
    ListOffsets = 2, flexible 6, 1..=11, broker answered;
    Metadata = 3, flexible 9, 0..=13, broker answered;
    LeaderAndIsr = 4, flexible NEVER, 0..=-1, not_served "removed in Kafka 4.0";
    StopReplica = 5, flexible NEVER, 0..=-1, not_served "removed in Kafka 4.0";
    UpdateMetadata = 6, flexible NEVER, 0..=-1, not_served "removed in Kafka 4.0";
    ControlledShutdown = 7, flexible NEVER, 0..=-1, not_served "removed in Kafka 4.0";
    OffsetCommit = 8, flexible 8, 0..=-1, not_served "no groups yet";
    OffsetFetch = 9, flexible 6, 0..=-1, not_served "no groups yet";
    FindCoordinator = 10, flexible 3, 0..=6, not_served "no group or transaction coordinator yet";
    JoinGroup = 11, flexible 6, 0..=-1, not_served "no groups yet";
    Heartbeat = 12, flexible 4, 0..=-1, not_served "no groups yet";
    LeaveGroup = 13, flexible 4, 0..=-1, not_served "no groups yet";
    SyncGroup = 14, flexible 4, 0..=-1, not_served "no groups yet";
    DescribeGroups = 15, flexible 5, 0..=-1, not_served "no groups yet";
    ListGroups = 16, flexible 3, 0..=-1, not_served "no groups yet";
    SaslHandshake = 17, flexible NEVER, 0..=-1, not_served "no security yet";
    ApiVersions = 18, flexible 3, 0..=5, both answered;
    CreateTopics = 19, flexible 5, 2..=8, both forwarded;
    DeleteTopics = 20, flexible 4, 1..=6, both forwarded;
    DeleteRecords = 21, flexible 2, 0..=2, broker answered;
    InitProducerId = 22, flexible 2, 0..=5, broker answered;
    OffsetForLeaderEpoch = 23, flexible 4, 2..=4, broker answered;
    AddPartitionsToTxn = 24, flexible 3, 0..=-1, not_served "no transactions yet";
    AddOffsetsToTxn = 25, flexible 3, 0..=-1, not_served "no transactions yet";
    EndTxn = 26, flexible 3, 0..=-1, not_served "no transactions yet";
    WriteTxnMarkers = 27, flexible 1, 0..=-1, not_served "no transactions yet";
    TxnOffsetCommit = 28, flexible 3, 0..=-1, not_served "no transactions yet";
    DescribeAcls = 29, flexible 2, 0..=-1, not_served "no security yet";
    CreateAcls = 30, flexible 2, 0..=-1, not_served "no security yet";
    DeleteAcls = 31, flexible 2, 0..=-1, not_served "no security yet";
    DescribeConfigs = 32, flexible 4, 1..=4, both answered;
    AlterConfigs = 33, flexible 2, 0..=2, both forwarded;
    AlterReplicaLogDirs = 34, flexible 2, 1..=2, broker answered;
    DescribeLogDirs = 35, flexible 2, 1..=5, broker answered;
    SaslAuthenticate = 36, flexible 2, 0..=-1, not_served "no security yet";
    CreatePartitions = 37, flexible 2, 0..=3, both forwarded;
    CreateDelegationToken = 38, flexible 2, 0..=-1, not_served "no security yet";
    RenewDelegationToken = 39, flexible 2, 0..=-1, not_served "no security yet";
    ExpireDelegationToken = 40, flexible 2, 0..=-1, not_served "no security yet";
    DescribeDelegationToken = 41, flexible 2, 0..=-1, not_served "no security yet";
    DeleteGroups = 42, flexible 2, 0..=-1, not_served "no groups yet";
    ElectLeaders = 43, flexible 2, 0..=2, both forwarded;
    IncrementalAlterConfigs = 44, flexible 1, 0..=1, both forwarded;
    AlterPartitionReassignments = 45, flexible 0, 0..=1, both forwarded;
    ListPartitionReassignments = 46, flexible 0, 0..=0, both forwarded;
    OffsetDelete = 47, flexible NEVER, 0..=-1, not_served "no groups yet";
    DescribeClientQuotas = 48, flexible 1, 0..=-1, not_served "no client quotas yet";
    AlterClientQuotas = 49, flexible 1, 0..=-1, not_served "no client quotas yet";
    DescribeUserScramCredentials = 50, flexible 0, 0..=-1, not_served "no security yet";
    AlterUserScramCredentials = 51, flexible 0, 0..=-1, not_served "no security yet";
    Vote = 52, flexible 0, 0..=-1, not_served "raft has its own listener";
    BeginQuorumEpoch = 53, flexible 1, 0..=-1, not_served "raft has its own listener";
    EndQuorumEpoch = 54, flexible 1, 0..=-1, not_served "raft has its own listener";
    DescribeQuorum = 55, flexible 0, 0..=2, both forwarded;
    AlterPartition = 56, flexible 2, 0..=-1, not_served "brokers use the quorum listener";
    UpdateFeatures = 57, flexible 0, 0..=2, both forwarded;
    Envelope = 58, flexible 0, 0..=-1, not_served "brokers use the quorum listener";
    FetchSnapshot = 59, flexible 0, 0..=-1, not_served "raft has its own listener";
    DescribeCluster = 60, flexible 0, 0..=2, both answered;
    DescribeProducers = 61, flexible 0, 0..=0, broker answered;
    BrokerRegistration = 62, flexible 0, 0..=-1, not_served "brokers use the quorum listener";
    BrokerHeartbeat = 63, flexible 0, 0..=-1, not_served "brokers use the quorum listener";
    UnregisterBroker = 64, flexible 0, 0..=0, both forwarded;
    DescribeTransactions = 65, flexible 0, 0..=0, not_served "no transactions yet";
    ListTransactions = 66, flexible 0, 0..=2, not_served "no transactions yet";
    AllocateProducerIds = 67, flexible 0, 0..=-1, not_served "brokers use the quorum listener";
    ConsumerGroupHeartbeat = 68, flexible 0, 0..=-1, not_served "no groups yet";
    ConsumerGroupDescribe = 69, flexible 0, 0..=-1, not_served "no groups yet";
    ControllerRegistration = 70, flexible 0, 0..=-1, not_served "brokers use the quorum listener";
    GetTelemetrySubscriptions = 71, flexible 0, 0..=-1, not_served "no client telemetry yet";
    PushTelemetry = 72, flexible 0, 0..=-1, not_served "no client telemetry yet";
    AssignReplicasToDirs = 73, flexible 0, 0..=-1, not_served "brokers use the quorum listener";
    ListConfigResources = 74, flexible 0, 0..=1, broker answered;
    DescribeTopicPartitions = 75, flexible 0, 0..=0, broker answered;
    ShareGroupHeartbeat = 76, flexible 1, 0..=-1, not_served "no groups yet";
    ShareGroupDescribe = 77, flexible 1, 0..=-1, not_served "no groups yet";
    ShareFetch = 78, flexible 1, 0..=-1, not_served "no groups yet";
    ShareAcknowledge = 79, flexible 1, 0..=-1, not_served "no groups yet";
    AddRaftVoter = 80, flexible 0, 0..=0, both forwarded;
    RemoveRaftVoter = 81, flexible 0, 0..=0, both forwarded;
    UpdateRaftVoter = 82, flexible 0, 0..=0, controller answered;
    InitializeShareGroupState = 83, flexible 0, 0..=-1, not_served "no groups yet";
    ReadShareGroupState = 84, flexible 0, 0..=-1, not_served "no groups yet";
    WriteShareGroupState = 85, flexible 0, 0..=-1, not_served "no groups yet";
    DeleteShareGroupState = 86, flexible 0, 0..=-1, not_served "no groups yet";
    ReadShareGroupStateSummary = 87, flexible 0, 0..=-1, not_served "no groups yet";
    StreamsGroupHeartbeat = 88, flexible 0, 0..=-1, not_served "no groups yet";
    StreamsGroupDescribe = 89, flexible 0, 0..=-1, not_served "no groups yet";
    DescribeShareGroupOffsets = 90, flexible 0, 0..=-1, not_served "no groups yet";
    AlterShareGroupOffsets = 91, flexible 0, 0..=-1, not_served "no groups yet";
    DeleteShareGroupOffsets = 92, flexible 0, 0..=-1, not_served "no groups yet";
    StreamsGroupTopologyDescriptionUpdate = 93, flexible 0, 0..=-1, not_served "no groups yet";
    UnregisterController = 94, flexible 0, 0..=-1, not_served "controllers are not registered: RemoveRaftVoter takes one out";

    // KIP-1279 leaves its keys open, and its prototype's collide with released Kafka.
    CreateMirror = 12790, flexible 0, 0..=0, both forwarded;
    AddTopicsToMirror = 12791, flexible 0, 0..=0, both forwarded;
    RemoveTopicsFromMirror = 12792, flexible 0, 0..=0, both forwarded;
    LastMirroredOffsets = 12793, flexible 0, 0..=0, both forwarded;
    ListMirrors = 12794, flexible 0, 0..=0, both answered;
    DescribeMirrors = 12795, flexible 0, 0..=0, both answered;
    ReadMirrorStates = 12796, flexible 0, 0..=0, both answered;
    WriteMirrorStates = 12797, flexible 0, 0..=0, both answered;
    ListSourceTopics = 12800, flexible 0, 0..=0, broker answered;
    VerifyMirror = 12801, flexible 0, 0..=0, broker answered;
    // Ours: hands the leadership of the controller quorum to another voter.
    TransferQuorumLeader = 12802, flexible 0, 0..=0, both forwarded;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/protocol.md.
    fn documentation() -> String {
        let mut out =
            String::from("| Key | API | Versions | Broker | Controller |\n| --- | --- | --- | --- | --- |\n");
        for spec in ApiKey::ALL.iter().map(|key| key.spec()) {
            let (key, name) = (spec.key.code(), spec.name);
            if let Some(why) = spec.not_served {
                out += &format!("| {key} | {name} | - | not supported: {why} | - |\n");
                continue;
            }
            let broker = match (spec.broker, spec.forwarded) {
                (true, true) => "sent on to the active controller",
                (true, false) => "answered",
                (false, _) => "-",
            };
            let controller = if spec.controller { "answered" } else { "-" };
            let versions = match spec.key {
                ApiKey::CreateTopics => format!("{}-7, and 8 of ours", spec.min_version),
                _ if spec.min_version == spec.max_version => spec.min_version.to_string(),
                _ => format!("{}-{}", spec.min_version, spec.max_version),
            };
            out += &format!("| {key} | {name} | {versions} | {broker} | {controller} |\n");
        }
        out
    }

    #[test]
    fn documentation_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/protocol.md");
        let document = std::fs::read_to_string(path).unwrap();
        let table = documentation();
        assert!(document.contains(&table), "docs/protocol.md should hold:\n{table}");
    }

    #[test]
    fn rows_are_in_order_and_consistent() {
        for pair in ApiKey::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code());
        }
        for &key in ApiKey::ALL {
            let spec = key.spec();
            assert_eq!(spec.key, key);
            assert_eq!(ApiKey::from_code(key.code()), Some(key));
            let served = spec.broker || spec.controller;
            assert_eq!(served, spec.not_served.is_none(), "{}", spec.name);
            assert!(!served || spec.min_version <= spec.max_version, "{}", spec.name);
            assert!(!spec.forwarded || spec.controller, "{} is forwarded to nobody", spec.name);
        }
        // Kafka 4.4 has no gap from 0 to 94.
        assert_eq!(ApiKey::ALL.len(), 95 + 11);
        assert_eq!(spec(95), None);
        assert_eq!(spec(12798), None);
    }

    #[test]
    fn header_versions() {
        assert_eq!(ApiKey::ApiVersions.spec().request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.spec().response_header_version(3), 0);
        assert_eq!(ApiKey::Produce.spec().request_header_version(8), 1);
        assert_eq!(ApiKey::Produce.spec().response_header_version(9), 1);
        assert_eq!(ApiKey::SaslHandshake.spec().request_header_version(1), 1);
        assert_eq!(ApiKey::CreateMirror.spec().response_header_version(0), 1);
    }

    #[test]
    fn create_topics_8_is_shown_to_our_own_client_alone() {
        let spec = ApiKey::CreateTopics.spec();
        assert!(spec.supports(8));
        assert_eq!(spec.advertised_max_version(None), 7);
        assert_eq!(spec.advertised_max_version(Some("apache-kafka-java")), 7);
        assert_eq!(spec.advertised_max_version(Some(CLIENT_SOFTWARE_NAME)), 8);
    }
}
