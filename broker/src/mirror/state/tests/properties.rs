//! Any order of events: what must never be wanted is never wanted, and nothing gets stuck.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Move {
    /// The outside answers what is under way, well or badly.
    Answer(u8),
    /// The image goes on: the next fact of the association's life.
    Image(u8),
    /// An answer of some earlier question.
    Late(u8),
    Time(i64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => any::<u8>().prop_map(Move::Answer),
        2 => any::<u8>().prop_map(Move::Image),
        1 => any::<u8>().prop_map(Move::Late),
        3 => (0i64..400_000).prop_map(Move::Time),
    ];
    proptest::collection::vec(one, 1..120)
}

/// The outside as far as it matters: the image's facts, and what is durable.
struct World {
    facts: MirrorFacts,
    durable: Option<StateRecord>,
    seen: Vec<Token>,
    log_end: i64,
}

impl World {
    fn facts_after(&self, choice: u8) -> MirrorFacts {
        let mut facts = self.facts.clone();
        let raised = LeaderEpoch(facts.leader_epoch.0 + 1);
        match choice % 6 {
            0 => facts.leader_epoch = raised,
            1 if facts.preparing_cut.is_none() && !facts.removed => {
                facts.preparing_cut = Some(CutFact { leader_epoch: raised, ..PREPARING_CUT });
                facts.leader_epoch = raised;
            }
            2 => facts.removed = true,
            3 if facts.removed && facts.preparing_cut.is_some() && facts.stopping_cut.is_none() => {
                facts.stopping_cut = Some(CutFact { leader_epoch: raised, ..STOPPING_CUT });
                facts.leader_epoch = raised;
            }
            4 => facts.recopy = true,
            5 if facts.released => {
                let association = Association(facts.association.0 + 100);
                facts = MirrorFacts { association, leader_epoch: raised, ..added() };
            }
            _ => {}
        }
        facts
    }

    /// An event that answers the effect, chosen by `choice`; `None` where nothing answers it.
    fn answer(&mut self, effect: &MirrorEffect, choice: u8) -> Option<MirrorEvent> {
        let good = !choice.is_multiple_of(4);
        let unavailable = || StoreError::Unavailable("x".to_owned());
        Some(match effect {
            MirrorEffect::ReadState { token } => {
                let result = if good { Ok(self.durable.clone()) } else { Err(unavailable()) };
                MirrorEvent::StateRead { token: *token, result }
            }
            MirrorEffect::SaveState { token, record, expected } => {
                let current = self.durable.as_ref().map_or(StateEpoch::NONE, |durable| durable.state_epoch);
                let result = if choice % 8 == 1 {
                    Err(unavailable())
                } else if *expected != current {
                    Err(StoreError::FencedStateEpoch)
                } else {
                    let state_epoch = current.next();
                    self.durable = Some(StateRecord { state_epoch, ..record.clone() });
                    // The answer may be lost although the write is durable.
                    if choice % 8 == 2 { Err(unavailable()) } else { Ok(state_epoch) }
                };
                MirrorEvent::StateWritten { token: *token, result }
            }
            MirrorEffect::Quiesce { token } => MirrorEvent::Quiesced {
                token: *token,
                log_end: Offset(self.log_end),
                highest_batch_epoch: LeaderEpoch(1),
            },
            MirrorEffect::AskLastMirroredOffset { token, .. } => {
                let last_mirrored = match choice % 5 {
                    0 => LastMirrored::Recorded(Offset(7)),
                    1 => LastMirrored::Nothing,
                    2 => LastMirrored::NotSupported,
                    3 => LastMirrored::OnlyUncut,
                    _ => LastMirrored::NotWritable { mirrors_other: false },
                };
                let result = if good {
                    Ok(position(last_mirrored, i64::from(choice)))
                } else {
                    Err(SourceFailure::CouldNotAsk("x".to_owned()))
                };
                MirrorEvent::SourceAnswered { token: *token, result }
            }
            MirrorEffect::CheckSource { token, .. } => {
                let result = if good {
                    Ok(check(i32::from(choice % 16), self.log_end))
                } else {
                    Err(SourceFailure::CouldNotAsk("x".to_owned()))
                };
                MirrorEvent::SourceChecked { token: *token, result }
            }
            MirrorEffect::ProposeCut { token, kind, .. } => {
                if good {
                    let next = match kind {
                        CutKind::Preparing | CutKind::Source => 1,
                        _ => 3,
                    };
                    self.facts = self.facts_after(next);
                }
                let refused = Err(ProposalError::Refused("x".to_owned()));
                MirrorEvent::Proposed {
                    token: *token,
                    result: if good { Ok(MetadataOffset(1)) } else { refused },
                }
            }
            MirrorEffect::ProposeRaise { token, minimum, .. } => {
                self.facts.leader_epoch = self.facts.leader_epoch.max(*minimum);
                MirrorEvent::Proposed { token: *token, result: Ok(MetadataOffset(1)) }
            }
            MirrorEffect::ProposeRelease { token, association, .. } => {
                if good && *association == self.facts.association {
                    self.facts.released = true;
                }
                let lost = Err(ProposalError::Unavailable("x".to_owned()));
                MirrorEvent::Proposed {
                    token: *token,
                    result: if good { Ok(MetadataOffset(1)) } else { lost },
                }
            }
            MirrorEffect::AwaitHighWatermark { token } => MirrorEvent::HighWatermarkAtEnd {
                token: *token,
                cut_point: Offset(self.log_end),
                highest_batch_epoch: LeaderEpoch(1),
            },
            MirrorEffect::AwaitReplicas { token, .. } => {
                MirrorEvent::ReplicasAligned { token: *token, log_end: Offset(self.log_end) }
            }
            MirrorEffect::RestartLogAt { token, .. } => {
                MirrorEvent::LogRestarted { token: *token, result: Ok(()) }
            }
            MirrorEffect::StartFetcher { token, .. } => match choice % 6 {
                0 => MirrorEvent::FetchSucceeded { token: *token },
                1 => MirrorEvent::FetchStopped { token: *token, why: FetchStop::OffsetOutOfRange },
                2 => MirrorEvent::FetchStopped { token: *token, why: FetchStop::NotLeader },
                3 => MirrorEvent::FetchStopped {
                    token: *token,
                    why: FetchStop::Failed(FailureReason::new(FailureKind::CorruptBatch, "")),
                },
                4 => MirrorEvent::FetchStopped {
                    token: *token,
                    why: FetchStop::EpochAboveOwn { batch: LeaderEpoch(i32::from(choice)) },
                },
                _ => MirrorEvent::FetchStopped { token: *token, why: FetchStop::SourceMoved { epoch: None } },
            },
            _ => return None,
        })
    }

    /// What must hold of every effect at the moment it is wanted.
    fn allowed(&mut self, machine: &Machine) -> Result<(), TestCaseError> {
        let facts = machine.state().facts().clone();
        let durable = self.durable.clone().filter(|durable| durable.association == facts.association);
        for effect in &machine.effects {
            match effect {
                MirrorEffect::ProposeCut { kind: CutKind::Preparing, .. } => {
                    prop_assert!(facts.preparing_cut.is_none() && !facts.removed && !facts.released);
                    prop_assert_eq!(
                        durable.as_ref().map(|durable| durable.state),
                        Some(MirrorState::Preparing)
                    );
                }
                MirrorEffect::ProposeCut { kind: CutKind::Stopping, .. } => {
                    prop_assert!(
                        facts.removed && facts.preparing_cut.is_some() && facts.stopping_cut.is_none()
                    );
                    prop_assert_eq!(
                        durable.as_ref().map(|durable| durable.state),
                        Some(MirrorState::Stopping)
                    );
                }
                MirrorEffect::StartFetcher { source, leader_epoch, .. } => {
                    prop_assert!(facts.preparing_cut.is_some() && !facts.removed && !facts.released);
                    prop_assert_eq!(
                        durable.as_ref().map(|durable| durable.state),
                        Some(MirrorState::Mirroring)
                    );
                    prop_assert!(source.epoch <= *leader_epoch, "never under an epoch below the source's");
                }
                MirrorEffect::ProposeRelease { association, offset, .. } => {
                    prop_assert!(facts.removed && *association == facts.association);
                    let durable = durable.as_ref();
                    prop_assert_eq!(durable.map(|durable| durable.state), Some(MirrorState::Stopped));
                    prop_assert_eq!(durable.and_then(|durable| durable.last_mirrored_offset), *offset);
                    prop_assert_eq!(offset.is_some(), facts.preparing_cut.is_some());
                }
                MirrorEffect::SaveState { token, .. }
                | MirrorEffect::ReadState { token }
                | MirrorEffect::Quiesce { token } => self.seen.push(*token),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_alive(machine: &Machine, last: &[MirrorEffect]) -> bool {
    let state = machine.state();
    match &state.phase {
        Phase::Doing(_) | Phase::Fetching { .. } => !last.is_empty(),
        Phase::Pausing { .. } | Phase::Failed { .. } => state.wakes_at_ms().is_some(),
        Phase::AwaitingImage(_) | Phase::ImageBehind | Phase::Recovering | Phase::Released => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_rules_hold(log_end in 0i64..20, moves in moves()) {
        let mut world = World { facts: added(), durable: None, seen: Vec::new(), log_end };
        let mut machine = Machine::lead(added());
        let mut open: Vec<MirrorEffect> = machine.effects.clone();
        for next in moves {
            let event = match next {
                Move::Time(ms) => {
                    machine.now_ms += ms;
                    MirrorEvent::Tick
                }
                Move::Image(choice) => {
                    world.facts = world.facts_after(choice);
                    MirrorEvent::FactsChanged(world.facts.clone())
                }
                Move::Late(choice) => {
                    let Some(token) = world.seen.get(usize::from(choice) % world.seen.len().max(1)) else { continue };
                    if *token == machine.token() {
                        continue;
                    }
                    MirrorEvent::ReplicasAligned { token: *token, log_end: Offset(3) }
                }
                Move::Answer(choice) => {
                    let Some(effect) = open.last().cloned() else { continue };
                    let Some(event) = world.answer(&effect, choice) else {
                        open.pop();
                        continue;
                    };
                    if !matches!(event, MirrorEvent::FetchSucceeded { .. }) {
                        open.pop();
                    }
                    event
                }
            };
            let late = matches!(next, Move::Late(_));
            machine.send(event);
            if late {
                let ignored = matches!(machine.effects[..], [MirrorEffect::Ignore { .. }]);
                prop_assert!(ignored);
            }
            world.allowed(&machine)?;
            let questions = machine.effects.iter().filter(|effect| {
                !matches!(effect, MirrorEffect::Report(_) | MirrorEffect::Ignore { .. } | MirrorEffect::WakeAt { .. }
                    | MirrorEffect::StopFetcher | MirrorEffect::AppendUnder { .. })
            });
            let questions: Vec<MirrorEffect> = questions.cloned().collect();
            if !questions.is_empty() {
                prop_assert_eq!(questions.len(), 1, "one thing at a time");
                open = questions;
            }
            prop_assert!(is_alive(&machine, &open), "{:?}", machine.state());
        }
    }

    /// With an outside that answers well, a removed topic ends released from wherever it stood.
    #[test]
    fn a_remove_always_ends_released(log_end in 0i64..20, moves in moves()) {
        let mut world = World { facts: added(), durable: None, seen: Vec::new(), log_end };
        let mut machine = Machine::lead(added());
        let mut open = machine.effects.clone();
        for next in moves.into_iter().take(40) {
            let event = match next {
                Move::Answer(choice) => match open.pop().and_then(|effect| world.answer(&effect, choice)) {
                    Some(event) => event,
                    None => continue,
                },
                Move::Time(ms) => {
                    machine.now_ms += ms;
                    MirrorEvent::Tick
                }
                _ => continue,
            };
            machine.send(event);
            open.extend(machine.effects.clone());
        }
        if world.facts.released {
            return Ok(());
        }
        world.facts.removed = true;
        machine.send(MirrorEvent::FactsChanged(world.facts.clone()));
        open.extend(machine.effects.clone());
        for _ in 0..200 {
            machine.now_ms += 400_000;
            // 15 is a good answer to each question.
            let event = match open.pop().and_then(|effect| world.answer(&effect, 15)) {
                Some(event) => event,
                None if machine.state().facts() != &world.facts => MirrorEvent::FactsChanged(world.facts.clone()),
                None => MirrorEvent::Tick,
            };
            machine.send(event);
            open.extend(machine.effects.clone());
            if machine.state().facts().released {
                prop_assert_eq!(machine.shown(), MirrorState::Stopped);
                return Ok(());
            }
        }
        prop_assert!(false, "stuck in {:?}", machine.state());
    }
}
