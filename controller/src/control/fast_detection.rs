//! PURE: a broker whose process has ended is fenced at once, not when its session lapses.
//!
//! The end of a broker's connection is a reason to look, never evidence: the controller dials the
//! broker's inter-broker listener. Only *connection refused*, twice in a row and close together, says
//! that the process is gone, since a paused process or a full backlog still has its kernel accept. A
//! time-out, an unreachable host or a name that does not resolve may be our own network. A controller
//! that has just become active knows too little of anybody to fence on it.

use common::ids::{BrokerEpoch, BrokerId};
use common::metadata::{MetadataImage, MetadataRecord};

use super::broker;
use super::heartbeat::{ConnectionId, Heartbeats};
use super::settings::ControlSettings;

/// Both refusals come within this.
pub const REFUSALS_WITHIN_MS: u64 = 200;
/// Between two dials.
pub const DIAL_INTERVAL_MS: u64 = 50;
/// The kernel takes a killed process's sockets apart one by one: its listener may outlive its
/// connections for a moment, so one answer is not the end.
const MAX_DIALS: usize = 6;

/// Whom to dial, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub host: String,
    pub port: u16,
}

/// What a dial gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dial {
    Refused,
    /// Accepted, timed out, unreachable, unresolved.
    NoEvidence,
}

/// Two refusals in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub first_refused_ms: u64,
    pub second_refused_ms: u64,
}

/// What to do after some dials, oldest first, each with the time of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Dial,
    Refused { first_ms: u64, second_ms: u64 },
    GiveUp,
}

/// A connection has ended: the brokers that were heard over it and may be gone.
pub fn suspects(
    image: &MetadataImage,
    heartbeats: &mut Heartbeats,
    connection: ConnectionId,
    now_ms: u64,
) -> Vec<Suspect> {
    let heard = heartbeats.connection_closed(connection);
    if !heartbeats.settled(now_ms) {
        return Vec::new();
    }
    heard
        .into_iter()
        .filter_map(|(broker_id, broker_epoch)| {
            let broker = image.brokers.get(&broker_id)?;
            let endpoint = broker.inter_broker()?;
            (!broker.fenced && broker.broker_epoch == broker_epoch).then(|| Suspect {
                broker_id,
                broker_epoch,
                host: endpoint.host.clone(),
                port: endpoint.port,
            })
        })
        .collect()
}

pub fn next(dials: &[(u64, Dial)]) -> Next {
    if let [.., (first_ms, Dial::Refused), (second_ms, Dial::Refused)] = dials
        && second_ms.saturating_sub(*first_ms) <= REFUSALS_WITHIN_MS
    {
        return Next::Refused { first_ms: *first_ms, second_ms: *second_ms };
    }
    if dials.len() < MAX_DIALS { Next::Dial } else { Next::GiveUp }
}

/// Fences the incarnation that was dialled, unless it, or a successor, has been heard of since.
pub fn fence_refused(
    image: &MetadataImage,
    settings: &ControlSettings,
    heartbeats: &Heartbeats,
    evidence: Evidence,
    now_ms: u64,
) -> Vec<MetadataRecord> {
    let close = evidence.second_refused_ms.saturating_sub(evidence.first_refused_ms) <= REFUSALS_WITHIN_MS;
    let same = image
        .brokers
        .get(&evidence.broker_id)
        .is_some_and(|broker| broker.broker_epoch == evidence.broker_epoch);
    let heard = heartbeats.heard_since(evidence.broker_id, evidence.first_refused_ms);
    if !close || !same || heard || !heartbeats.settled(now_ms) {
        return Vec::new();
    }
    broker::fence(image, settings, evidence.broker_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    const EPOCH: BrokerEpoch = BrokerEpoch(1);

    fn heard(image: &MetadataImage) -> Heartbeats {
        let mut heartbeats = Heartbeats::new(9000);
        heartbeats.restart(image, 0);
        heartbeats.heard(BrokerId(1), EPOCH, Some(7), 9_500);
        heartbeats
    }

    fn evidence(first: u64, second: u64) -> Evidence {
        Evidence {
            broker_id: BrokerId(1),
            broker_epoch: EPOCH,
            first_refused_ms: first,
            second_refused_ms: second,
        }
    }

    #[test]
    fn only_two_refusals_close_together_count() {
        use Dial::{NoEvidence, Refused};
        let cases: &[(&[(u64, Dial)], Next)] = &[
            (&[], Next::Dial),
            (&[(0, Refused)], Next::Dial),
            (&[(0, Refused), (60, Refused)], Next::Refused { first_ms: 0, second_ms: 60 }),
            (&[(0, Refused), (200, Refused)], Next::Refused { first_ms: 0, second_ms: 200 }),
            (&[(0, Refused), (201, Refused)], Next::Dial),
            (&[(0, Refused), (60, NoEvidence)], Next::Dial),
            (&[(0, Refused), (60, NoEvidence), (120, Refused)], Next::Dial),
            (
                &[(0, NoEvidence), (60, Refused), (120, Refused)],
                Next::Refused { first_ms: 60, second_ms: 120 },
            ),
            (&[(0, NoEvidence); 6], Next::GiveUp),
        ];
        for (dials, expected) in cases {
            assert_eq!(next(dials), *expected, "{dials:?}");
        }
    }

    #[test]
    fn the_end_of_a_connection_is_a_reason_to_dial_whoever_was_heard_over_it() {
        let image = with_brokers(&[1]);
        let mut heartbeats = heard(&image);
        assert_eq!(suspects(&image, &mut heartbeats, 8, 9_600), vec![]);
        let found = suspects(&image, &mut heartbeats, 7, 9_600);
        let endpoint = image.brokers[&BrokerId(1)].inter_broker().unwrap();
        assert_eq!(
            found,
            vec![Suspect {
                broker_id: BrokerId(1),
                broker_epoch: EPOCH,
                host: endpoint.host.clone(),
                port: endpoint.port
            }]
        );
        assert_eq!(suspects(&image, &mut heartbeats, 7, 9_600), vec![], "once");
    }

    #[test]
    fn nothing_is_fenced_within_one_session_of_becoming_active() {
        let image = with_brokers(&[1]);
        let mut heartbeats = heard(&image);
        assert_eq!(suspects(&image, &mut heartbeats, 7, 8_999), vec![]);
        let mut late = heard(&image);
        late.restart(&image, 5_000);
        assert_eq!(fence_refused(&image, &settings(), &late, evidence(13_900, 13_950), 13_999), vec![]);
        assert!(!fence_refused(&image, &settings(), &late, evidence(13_900, 13_950), 14_001).is_empty());
    }

    #[test]
    fn a_sign_of_life_or_a_successor_clears_the_suspicion() {
        let image = with_brokers(&[1]);
        let mut heartbeats = heard(&image);
        let refused = evidence(9_600, 9_660);
        assert!(!fence_refused(&image, &settings(), &heartbeats, refused, 9_700).is_empty());
        assert_eq!(fence_refused(&image, &settings(), &heartbeats, evidence(9_600, 9_900), 9_900), vec![]);
        heartbeats.heard(BrokerId(1), EPOCH, Some(9), 9_650);
        assert_eq!(fence_refused(&image, &settings(), &heartbeats, refused, 9_700), vec![]);
        let successor = Evidence { broker_epoch: BrokerEpoch(77), ..refused };
        let quiet = heard(&image);
        assert_eq!(fence_refused(&image, &settings(), &quiet, successor, 9_700), vec![]);
    }
}
