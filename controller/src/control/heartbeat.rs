//! Soft state: when each broker was last heard, and over which connections. It is not in the log; a new
//! active controller starts with a fresh session for everybody.

use std::collections::{HashMap, HashSet};

use common::ids::{BrokerEpoch, BrokerId, MetadataOffset};
use common::metadata::MetadataImage;

/// Names one connection to the quorum listener.
pub type ConnectionId = u64;

/// What is known of an incarnation that is still registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It holds a connection, or was not yet given the time to show up at this controller.
    Alive,
    /// Its connections are gone or its session lapsed: the process has ended.
    Gone,
}

/// Contacts of all brokers; all times are monotonic milliseconds.
#[derive(Debug)]
pub struct Heartbeats {
    session_timeout_ms: u64,
    active_since_ms: u64,
    contacts: HashMap<BrokerId, Contact>,
}

#[derive(Debug)]
struct Contact {
    broker_epoch: BrokerEpoch,
    last_contact_ms: u64,
    /// Heard of since this controller became active.
    heard: bool,
    connections: HashSet<ConnectionId>,
    replayed: Replayed,
}

/// How far a broker has come with the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// `None`: it has not said so here.
    pub offset: Option<MetadataOffset>,
    pub last_contact_ms: u64,
    pub last_caught_up_ms: Option<u64>,
    /// Where the log ended at its last heartbeat: it was caught up then if it has that now, as Kafka
    /// counts it.
    end_at_last_contact: MetadataOffset,
}

impl Replayed {
    fn unknown(now_ms: u64) -> Replayed {
        let end_at_last_contact = MetadataOffset(i64::MAX);
        Replayed { offset: None, last_contact_ms: now_ms, last_caught_up_ms: None, end_at_last_contact }
    }
}

impl Heartbeats {
    pub fn new(session_timeout_ms: u64) -> Heartbeats {
        Heartbeats { session_timeout_ms, active_since_ms: 0, contacts: HashMap::new() }
    }

    /// This controller became active: everybody registered has a whole session to show up.
    pub fn restart(&mut self, image: &MetadataImage, now_ms: u64) {
        self.active_since_ms = now_ms;
        self.contacts = image
            .brokers
            .iter()
            .map(|(id, broker)| {
                let contact = Contact {
                    broker_epoch: broker.broker_epoch,
                    last_contact_ms: now_ms,
                    heard: false,
                    connections: HashSet::new(),
                    replayed: Replayed::unknown(now_ms),
                };
                (*id, contact)
            })
            .collect();
    }

    /// A registration or heartbeat of this incarnation arrived.
    pub fn heard(
        &mut self,
        broker: BrokerId,
        epoch: BrokerEpoch,
        connection: Option<ConnectionId>,
        now_ms: u64,
    ) {
        let contact = self.contacts.entry(broker).or_insert_with(|| Contact {
            broker_epoch: epoch,
            last_contact_ms: now_ms,
            heard: true,
            connections: HashSet::new(),
            replayed: Replayed::unknown(now_ms),
        });
        if contact.broker_epoch != epoch {
            contact.broker_epoch = epoch;
            contact.connections.clear();
        }
        contact.heard = true;
        contact.last_contact_ms = now_ms;
        contact.connections.extend(connection);
    }

    /// A heartbeat told how far the broker has replayed, while the log ends at `end`.
    pub fn replayed(&mut self, broker: BrokerId, offset: MetadataOffset, end: MetadataOffset, now_ms: u64) {
        let Some(contact) = self.contacts.get_mut(&broker) else { return };
        let before = contact.replayed;
        let caught_up = if offset >= end {
            Some(now_ms)
        } else if offset >= before.end_at_last_contact {
            Some(before.last_contact_ms)
        } else {
            before.last_caught_up_ms
        };
        contact.replayed = Replayed {
            offset: Some(offset),
            last_contact_ms: now_ms,
            last_caught_up_ms: caught_up,
            end_at_last_contact: end,
        };
    }

    /// All brokers that were heard of here, with what they have replayed.
    pub fn all_replayed(&self) -> Vec<(BrokerId, Replayed)> {
        let heard = self.contacts.iter().filter(|(_, contact)| contact.replayed.offset.is_some());
        let mut all: Vec<_> = heard.map(|(id, contact)| (*id, contact.replayed)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// The incarnations that were heard over it.
    pub fn connection_closed(&mut self, connection: ConnectionId) -> Vec<(BrokerId, BrokerEpoch)> {
        let mut heard = Vec::new();
        for (id, contact) in &mut self.contacts {
            if contact.connections.remove(&connection) {
                heard.push((*id, contact.broker_epoch));
            }
        }
        heard
    }

    /// A whole session has passed since this controller became active.
    pub fn settled(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.active_since_ms) >= self.session_timeout_ms
    }

    pub fn heard_since(&self, broker: BrokerId, since_ms: u64) -> bool {
        self.contacts.get(&broker).is_some_and(|contact| contact.last_contact_ms >= since_ms)
    }

    /// Whether the registered incarnation still runs. A process that was killed has lost its connections
    /// at once, so its successor need not wait for the session to lapse; a second live process finds the
    /// first one's connection open.
    pub fn liveness(&self, broker: BrokerId, epoch: BrokerEpoch, now_ms: u64) -> Liveness {
        let Some(contact) = self.contacts.get(&broker).filter(|contact| contact.broker_epoch == epoch) else {
            return Liveness::Gone;
        };
        let silent_ms = now_ms.saturating_sub(contact.last_contact_ms);
        let alive = if contact.heard {
            !contact.connections.is_empty() && silent_ms <= self.session_timeout_ms
        } else {
            // Right after a change of controllers a live broker needs about a heartbeat to come here.
            silent_ms <= self.session_timeout_ms / 3
        };
        if alive { Liveness::Alive } else { Liveness::Gone }
    }

    /// Unfenced brokers whose session has lapsed.
    pub fn lapsed(&self, image: &MetadataImage, now_ms: u64) -> Vec<BrokerId> {
        image
            .brokers
            .iter()
            .filter(|(id, broker)| {
                !broker.fenced
                    && self.contacts.get(id).is_none_or(|contact| {
                        contact.broker_epoch != broker.broker_epoch
                            || now_ms.saturating_sub(contact.last_contact_ms) > self.session_timeout_ms
                    })
            })
            .map(|(id, _)| *id)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;

    const EPOCH: BrokerEpoch = BrokerEpoch(1);

    #[test]
    fn a_broker_was_caught_up_when_it_has_what_there_was_at_its_last_heartbeat() {
        let image = with_brokers(&[1]);
        let mut heartbeats = Heartbeats::new(9000);
        heartbeats.restart(&image, 0);
        assert_eq!(heartbeats.all_replayed(), vec![]);
        let mut at = |offset, end, now_ms| {
            heartbeats.replayed(BrokerId(1), MetadataOffset(offset), MetadataOffset(end), now_ms);
            heartbeats.all_replayed()[0].1.last_caught_up_ms
        };
        assert_eq!(at(5, 9, 100), None);
        assert_eq!(at(9, 12, 200), Some(100), "it has what there was at 100");
        assert_eq!(at(11, 15, 300), Some(100));
        assert_eq!(at(15, 15, 400), Some(400));
    }

    #[test]
    fn sessions_lapse_and_begin_anew_with_a_new_active_controller() {
        let image = with_brokers(&[1]);
        let mut heartbeats = Heartbeats::new(9000);
        heartbeats.restart(&image, 100);
        assert_eq!(heartbeats.lapsed(&image, 9100), vec![]);
        assert_eq!(heartbeats.lapsed(&image, 9101), ids(&[1]));
        heartbeats.heard(BrokerId(1), EPOCH, Some(1), 9000);
        assert_eq!(heartbeats.lapsed(&image, 18_000), vec![]);
        heartbeats.restart(&image, 20_000);
        assert_eq!(heartbeats.lapsed(&image, 28_000), vec![]);
    }

    #[test]
    fn a_killed_process_is_gone_with_its_connections_and_a_paused_one_with_its_session() {
        let image = with_brokers(&[1]);
        let mut heartbeats = Heartbeats::new(9000);
        heartbeats.restart(&image, 0);
        assert_eq!(heartbeats.liveness(BrokerId(1), EPOCH, 3000), Liveness::Alive, "not heard of yet");
        assert_eq!(heartbeats.liveness(BrokerId(1), EPOCH, 3001), Liveness::Gone);
        heartbeats.heard(BrokerId(1), EPOCH, Some(7), 4000);
        heartbeats.heard(BrokerId(1), EPOCH, Some(8), 4000);
        heartbeats.connection_closed(7);
        assert_eq!(heartbeats.liveness(BrokerId(1), EPOCH, 5000), Liveness::Alive);
        assert_eq!(heartbeats.liveness(BrokerId(1), EPOCH, 13_001), Liveness::Gone);
        heartbeats.connection_closed(8);
        assert_eq!(heartbeats.liveness(BrokerId(1), EPOCH, 5000), Liveness::Gone);
        assert_eq!(heartbeats.liveness(BrokerId(1), BrokerEpoch(2), 5000), Liveness::Gone);
    }
}
