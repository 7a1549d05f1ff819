//! Whatever happens to brokers, ISRs and replicas: I-R2 of the invariants, and no clean election of a
//! replica that misses what was committed (I-R4). The logs are numbers here.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::control::broker::{self, Heartbeat, Registration};
use crate::control::config::{AlterResource, Change, incremental_alter};
use crate::control::election::{ElectionType, elect_leaders, elect_preferred};
use crate::control::heartbeat::Liveness;
use crate::control::mirror::cut::CutRequest;
use crate::control::mirror::propose::{Proposal, propose};
use crate::control::reassignment::{self, Reassignment};
use crate::control::testing::*;
use common::metadata::record::{ConfigResourceType, CutKind, Endpoint};

const BROKERS: i32 = 5;
const ID: TopicIdPartition = TopicIdPartition { topic_id: TopicId(uuid::Uuid::from_u128(1)), partition: 0 };

#[derive(Clone, Debug)]
enum Step {
    /// The leader appends, and commits if enough are in sync.
    Write,
    /// The leader proposes an ISR of those in the mask that are alive; joiners have caught up.
    Isr(u8),
    Fence(i32),
    Shutdown(i32),
    /// It registers anew, having stopped in order or not; in the latter case with its log or without.
    Return {
        broker: i32,
        clean: bool,
        emptied: bool,
    },
    Reassign(Vec<i32>),
    Cancel,
    MinIsr(i32),
    Unclean(bool),
    Elect {
        unclean: bool,
    },
    Balance,
    Recover,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let broker = 1..=BROKERS;
    let replicas = proptest::sample::subsequence((1..=BROKERS).collect::<Vec<_>>(), 1..=4).prop_shuffle();
    let step = prop_oneof![
        4 => Just(Step::Write),
        6 => any::<u8>().prop_map(Step::Isr),
        3 => broker.clone().prop_map(Step::Fence),
        2 => broker.clone().prop_map(Step::Shutdown),
        6 => (broker, any::<bool>(), any::<bool>())
            .prop_map(|(broker, clean, emptied)| Step::Return { broker, clean, emptied }),
        2 => replicas.prop_map(Step::Reassign),
        1 => Just(Step::Cancel),
        1 => (1..=3).prop_map(Step::MinIsr),
        1 => any::<bool>().prop_map(Step::Unclean),
        1 => any::<bool>().prop_map(|unclean| Step::Elect { unclean }),
        1 => Just(Step::Balance),
        3 => Just(Step::Recover),
    ];
    proptest::collection::vec(step, 1..80)
}

struct Model {
    image: MetadataImage,
    settings: ControlSettings,
    /// How many records each broker's log has of the common history.
    logs: BTreeMap<BrokerId, u64>,
    committed: u64,
    incarnations: u128,
}

impl Model {
    fn new() -> Model {
        let mut image = with_brokers(&[1, 2, 3, 4, 5]);
        add_topic(&mut image, "t", ID.topic_id, vec![registration(&[1, 2, 3], &[1, 2, 3], Some(1))]);
        Model { image, settings: settings(), logs: BTreeMap::new(), committed: 0, incarnations: 100 }
    }

    fn now(&self) -> PartitionRegistration {
        self.image.partition(ID).unwrap().registration.clone()
    }

    fn min_isr(&self) -> usize {
        self.settings.min_insync_replicas(&self.image, "t").min(self.now().replicas.len())
    }

    fn log(&self, broker: BrokerId) -> u64 {
        self.logs.get(&broker).copied().unwrap_or(0)
    }

    fn apply(&mut self, records: Vec<MetadataRecord>) {
        if records.is_empty() {
            return;
        }
        let before = self.now();
        replay(&mut self.image, records);
        let after = self.now();
        for gone in before.replicas.iter().filter(|replica| !after.replicas.contains(replica)) {
            self.logs.remove(gone);
        }
        assert!(after.leader_epoch >= before.leader_epoch && after.partition_epoch >= before.partition_epoch);
        if after.leader != before.leader {
            assert!(after.leader_epoch > before.leader_epoch, "a new leader under the old epoch");
        }
        let Some(leader) = after.leader.filter(|leader| before.leader != Some(*leader)) else { return };
        let became_unclean = after.leader_recovery_state == LeaderRecoveryState::Recovering;
        if became_unclean {
            // Whatever it misses is lost, as its LOSS cut will say.
            self.committed = self.committed.min(self.log(leader));
            let end = self.log(leader);
            self.logs.values_mut().for_each(|log| *log = (*log).min(end));
        } else {
            assert_eq!(
                self.log(leader),
                self.committed,
                "{leader} was elected cleanly: {before:?} {after:?}"
            );
        }
    }

    fn alter_config(&mut self, key: &str, value: String) {
        let change = Change { key: key.to_owned(), operation: 0, value: Some(value) };
        let resource = AlterResource {
            resource_type: ConfigResourceType::Topic.code(),
            name: "t".to_owned(),
            changes: vec![change],
        };
        let result = incremental_alter(&self.image, &self.settings, &[resource], false);
        self.apply(result.records);
    }

    fn run(&mut self, step: &Step) {
        let now = self.now();
        let sender = |broker: BrokerId| Sender {
            broker_id: broker,
            broker_epoch: self.image.brokers[&broker].broker_epoch,
        };
        match step {
            Step::Write => {
                let recovered = now.leader_recovery_state == LeaderRecoveryState::Recovered;
                if now.leader.is_some() && recovered && now.isr.len() >= self.min_isr() {
                    self.committed += 1;
                    for member in &now.isr {
                        self.logs.insert(*member, self.committed);
                    }
                }
            }
            Step::Isr(mask) => {
                let Some(leader) = now.leader else { return };
                let wanted = |broker: &BrokerId| {
                    *broker == leader || (mask & (1 << broker.0) != 0 && is_active(&self.image, *broker))
                };
                let isr: Vec<BrokerId> = now.replicas.iter().copied().filter(wanted).collect();
                let new_isr = isr
                    .iter()
                    .map(|member| (*member, Some(self.image.brokers[member].broker_epoch)))
                    .collect();
                let proposal = IsrProposal {
                    topic_id: ID.topic_id,
                    partition: 0,
                    leader_epoch: now.leader_epoch,
                    partition_epoch: now.partition_epoch,
                    new_isr,
                };
                let result =
                    alter_partitions(&self.image, &self.settings, sender(leader), &[proposal]).unwrap();
                if result.response[0].is_ok() {
                    let end = self.log(leader);
                    for member in &isr {
                        self.logs.insert(*member, end);
                    }
                    self.apply(result.records);
                }
            }
            Step::Fence(broker) => {
                self.apply(broker::fence(&self.image, &self.settings, BrokerId(*broker)));
            }
            Step::Shutdown(broker) => {
                for _ in 0..2 {
                    let beat = Heartbeat {
                        sender: Sender {
                            broker_id: BrokerId(*broker),
                            broker_epoch: self.image.brokers[&BrokerId(*broker)].broker_epoch,
                        },
                        metadata_offset: self.image.offset,
                        want_fence: false,
                        offline_directories: Vec::new(),
                        want_shutdown: true,
                    };
                    let result = broker::heartbeat(&self.image, &self.settings, beat).unwrap();
                    self.apply(result.records);
                }
            }
            Step::Return { broker, clean, emptied } => self.come_back(BrokerId(*broker), *clean, *emptied),
            Step::Reassign(replicas) => {
                let target = (0, Some(ids(replicas)));
                let asked = Reassignment { topic: "t".to_owned(), partitions: vec![target] };
                self.apply(reassignment::alter(&self.image, &self.settings, &[asked], true).records);
            }
            Step::Cancel => {
                let asked = Reassignment { topic: "t".to_owned(), partitions: vec![(0, None)] };
                self.apply(reassignment::alter(&self.image, &self.settings, &[asked], true).records);
            }
            Step::MinIsr(count) => self.alter_config("min.insync.replicas", count.to_string()),
            Step::Unclean(allow) => self.alter_config("unclean.leader.election.enable", allow.to_string()),
            Step::Elect { unclean } => {
                let election = if *unclean { ElectionType::Unclean } else { ElectionType::Preferred };
                self.apply(elect_leaders(&self.image, &self.settings, election, None).records);
            }
            Step::Balance => self.apply(elect_preferred(&self.image, &self.settings)),
            Step::Recover => {
                let Some(leader) = now.leader else { return };
                let cut = Proposal::Cut(CutRequest {
                    id: ID,
                    leader_epoch: now.leader_epoch,
                    kind: CutKind::Loss,
                    association: None,
                    offset: Offset(self.log(leader) as i64),
                    highest_batch_epoch: LeaderEpoch(0),
                    directory: directory(1),
                    only_release: false,
                    source_cut_id: None,
                });
                let mut random = Numbers::default();
                let result =
                    propose(&self.image, &self.settings, sender(leader), &[cut], &mut random).unwrap();
                self.apply(result.records);
            }
        }
    }

    fn come_back(&mut self, broker: BrokerId, clean: bool, emptied: bool) {
        let before = self.image.brokers[&broker].clone();
        // Only who was fenced in order can say that it stopped in order.
        let clean = clean && before.fenced;
        if !clean && emptied {
            self.logs.remove(&broker);
        }
        self.incarnations += 1;
        let request = Registration {
            broker_id: broker,
            incarnation_id: IncarnationId(uuid::Uuid::from_u128(self.incarnations)),
            endpoints: vec![Endpoint {
                name: "PLAINTEXT".to_owned(),
                host: "localhost".to_owned(),
                port: 9092,
                security_protocol: 0,
            }],
            inter_broker_endpoint: 0,
            rack: None,
            directories: vec![directory(broker.0 as u128)],
            previous_broker_epoch: clean.then_some(before.broker_epoch),
        };
        let registered =
            broker::register(&self.image, &self.settings, &request, &[], Liveness::Gone).unwrap();
        self.apply(registered.records);
        let beat = Heartbeat {
            sender: Sender { broker_id: broker, broker_epoch: registered.response },
            metadata_offset: self.image.offset,
            want_fence: false,
            offline_directories: Vec::new(),
            want_shutdown: false,
        };
        let result = broker::heartbeat(&self.image, &self.settings, beat).unwrap();
        self.apply(result.records);
    }

    fn check(&self, step: &Step) {
        let now = self.now();
        let distinct = |list: &[BrokerId]| list.iter().collect::<HashSet<_>>().len() == list.len();
        let within = |list: &[BrokerId]| list.iter().all(|member| now.replicas.contains(member));
        for list in [
            &now.replicas,
            &now.isr,
            &now.elr,
            &now.last_known_elr,
            &now.adding_replicas,
            &now.removing_replicas,
        ] {
            assert!(distinct(list) && within(list), "{step:?}: {now:?}");
        }
        assert_eq!(now.directories.len(), now.replicas.len());
        assert!(!now.isr.iter().any(|member| now.elr.contains(member)), "{step:?}: {now:?}");
        assert!(now.isr.len() < self.min_isr() || now.elr.is_empty(), "{step:?}: {now:?}");
        for member in &now.isr {
            assert!(is_active(&self.image, *member), "{step:?}: {member} is not active: {now:?}");
        }
        match now.leader {
            Some(leader) => assert!(now.isr.contains(&leader), "{step:?}: {now:?}"),
            None => {
                let could = now.isr.iter().chain(&now.elr).find(|member| is_active(&self.image, **member));
                assert_eq!(could, None, "{step:?}: nobody leads {now:?}");
            }
        }
        assert!(now.replicas.len() > now.removing_replicas.len(), "{step:?}: all go: {now:?}");
        let both = now.adding_replicas.iter().find(|replica| now.removing_replicas.contains(replica));
        assert_eq!(both, None, "{step:?}: {now:?}");
        // I-R4: what was committed is on every member, and on everybody eligible.
        for member in now.isr.iter().chain(&now.elr) {
            let log = self.log(*member);
            assert!(log >= self.committed, "{step:?}: {member} has {log} of {}: {now:?}", self.committed);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn who_is_in_sync_or_eligible_has_all_that_is_committed(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
            model.check(step);
        }
    }
}
