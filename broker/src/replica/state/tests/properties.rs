//! Whatever happens in whatever order.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Assign { leader: Option<i32>, raise: i32, isr: Vec<i32>, recovering: bool },
    Append(i64),
    Fetch { broker: i32, stale: bool, back: i64, eligible: bool },
    Answer { committed: bool, superseded: bool },
    Lag,
    Cut(i64),
    Replicate { grow: i64, high_watermark: i64 },
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let isr = proptest::sample::subsequence(vec![1, 2, 3], 0..=3);
    prop_oneof![
        1 => (proptest::option::of(1..=3), 0..2, isr, proptest::bool::weighted(0.1)).prop_map(
            |(leader, raise, isr, recovering)| Step::Assign { leader, raise, isr, recovering }
        ),
        4 => (1..20_i64).prop_map(Step::Append),
        6 => (1..=4, proptest::bool::weighted(0.1), 0..30_i64, any::<bool>())
            .prop_map(|(broker, stale, back, eligible)| Step::Fetch { broker, stale, back, eligible }),
        3 => (any::<bool>(), any::<bool>())
            .prop_map(|(committed, superseded)| Step::Answer { committed, superseded }),
        1 => Just(Step::Lag),
        1 => (0..40_i64).prop_map(Step::Cut),
        2 => (0..20_i64, 0..300_i64)
            .prop_map(|(grow, high_watermark)| Step::Replicate { grow, high_watermark }),
        1 => (1..40_000_i64).prop_map(Step::Wait),
    ]
}

/// What the controller would hold, and what was last proposed to it.
struct World {
    state: ReplicaState,
    now_ms: i64,
    leader_epoch: i32,
    partition_epoch: i32,
    proposal: Option<IsrProposal>,
}

impl World {
    fn events(&mut self, step: Step) -> Vec<ReplicaEvent> {
        let end = self.state.log_end_offset().0;
        match step {
            Step::Assign { leader, raise, isr, recovering } => {
                let changes_leader = leader != self.state.is_leader().then_some(1);
                self.leader_epoch += raise.max(i32::from(changes_leader));
                self.partition_epoch += 1;
                let assignment = Assignment {
                    recovering,
                    ..assignment(leader, self.leader_epoch, self.partition_epoch, &isr)
                };
                vec![assigned(assignment, self.now_ms)]
            }
            Step::Append(count) => vec![appended(end + count, self.now_ms)],
            Step::Fetch { broker, stale, back, eligible } => {
                let epoch = self.leader_epoch - i32::from(stale);
                let mut event = fetched(broker, epoch, (end - back).max(0), self.now_ms);
                if let ReplicaEvent::FollowerFetched(fetch) = &mut event {
                    fetch.eligible = eligible;
                }
                vec![event]
            }
            Step::Answer { committed, superseded } => {
                let Some(proposal) = self.proposal.take() else { return Vec::new() };
                let is_newest = proposal.partition_epoch.0 == self.partition_epoch
                    && proposal.leader_epoch.0 == self.leader_epoch;
                let outcome = if committed && is_newest {
                    self.partition_epoch += 1;
                    IsrOutcome::Committed {
                        isr: proposal.new_isr.iter().map(|member| member.broker_id).collect(),
                        leader_epoch: LeaderEpoch(self.leader_epoch),
                        partition_epoch: PartitionEpoch(self.partition_epoch),
                    }
                } else if superseded {
                    IsrOutcome::Superseded
                } else {
                    IsrOutcome::Refused
                };
                vec![answered(proposal.leader_epoch.0, proposal.partition_epoch.0, outcome)]
            }
            Step::Lag => vec![ReplicaEvent::LagCheck {
                now_ms: self.now_ms,
                active: vec![(BrokerId(3), BrokerEpoch(30))],
            }],
            Step::Cut(back) => {
                self.leader_epoch += 1;
                self.partition_epoch += 1;
                let leader = self.state.is_leader().then_some(1);
                let isr: Vec<i32> = self.state.isr().iter().map(|broker| broker.0).collect();
                vec![
                    ReplicaEvent::Suspended,
                    ReplicaEvent::Truncated { log_end_offset: Offset((end - back).max(0)) },
                    assigned(assignment(leader, self.leader_epoch, self.partition_epoch, &isr), self.now_ms),
                ]
            }
            Step::Replicate { grow, high_watermark } => {
                if self.state.is_leader() {
                    return Vec::new();
                }
                vec![ReplicaEvent::Replicated {
                    log_end_offset: Offset(end + grow),
                    leader_high_watermark: Offset(high_watermark),
                }]
            }
            Step::Wait(ms) => {
                self.now_ms += ms;
                Vec::new()
            }
        }
    }
}

proptest! {
    #[test]
    fn invariants(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World {
            state: fresh(),
            now_ms: 0,
            leader_epoch: 5,
            partition_epoch: 1,
            proposal: None,
        };
        for step in steps {
            for event in world.events(step) {
                let before = world.state.clone();
                let cuts = matches!(event, ReplicaEvent::Truncated { .. });
                let effects = world.state.apply(event.clone());
                let state = &world.state;
                // Epochs never fall; the high watermark falls with a cut alone, and stays within the log.
                prop_assert!(state.leader_epoch() >= before.leader_epoch());
                prop_assert!(cuts || state.high_watermark() >= before.high_watermark(), "{event:?}");
                prop_assert!(state.high_watermark() <= state.log_end_offset());
                // What is told is what is true.
                let told = effects.iter().rev().find_map(|effect| match effect {
                    ReplicaEffect::HighWatermarkMoved(to) => Some(*to),
                    _ => None,
                });
                if let Some(to) = told {
                    prop_assert_eq!(to, state.high_watermark());
                } else {
                    prop_assert!(cuts || state.high_watermark() == before.high_watermark());
                }
                if state.high_watermark() > before.high_watermark() && state.is_leader() {
                    // Never past a member, committed or proposed; never short of members.
                    prop_assert!(state.has_enough_in_sync() && state.is_serving());
                    if let Some(leader) = state.leader() {
                        let proposed = leader.pending_isr().into_iter().flat_map(|p| &p.new_isr);
                        let members = state.isr().iter().copied().chain(proposed.map(|m| m.broker_id));
                        for member in members.filter(|member| *member != LOCAL) {
                            let end = leader.follower_log_end_offset(member);
                            prop_assert!(end.is_some_and(|end| end >= state.high_watermark()));
                        }
                    }
                }
                for effect in &effects {
                    if let ReplicaEffect::ProposeIsr(proposal) = effect {
                        // One at a time, or the same once more; on the newest registration known.
                        let pending = before.leader().and_then(|leader| leader.pending_isr());
                        prop_assert!(pending.is_none_or(|pending| pending == proposal));
                        prop_assert_eq!(proposal.partition_epoch, state.partition_epoch());
                        world.proposal = Some(proposal.clone());
                    }
                }
            }
        }
    }
}
