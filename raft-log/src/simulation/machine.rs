//! The listener of a simulated voter: a state that is nothing but a digest of all payloads in order.

use std::sync::Arc;

use bytes::Bytes;
use openraft::entry::RaftEntry as _;
use parking_lot::Mutex;

use super::mutation::Mutation;
use super::oracle::{Oracle, name, position};
use crate::config::VoterId;
use crate::leadership::Leadership;
use crate::listener::{Listener, SnapshotWork};
use crate::store::{Store, crc};

/// A snapshot is a little longer than a chunk on its way.
const SNAPSHOT_BYTES: usize = 2_500;

pub struct Machine {
    pub voter: VoterId,
    pub oracle: Oracle,
    pub store: Store,
    pub state: Arc<Mutex<State>>,
    /// The newest term in which this one led.
    pub led: Mutex<u64>,
}

/// Of the last payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub index: u64,
    pub digest: u64,
}

impl State {
    fn after(self, index: u64, term: u64, crc: u32) -> State {
        let mixed =
            (self.digest ^ index ^ term.rotate_left(20) ^ u64::from(crc).rotate_left(32)).wrapping_add(1);
        State { index, digest: (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) }
    }

    fn encode(self) -> Vec<u8> {
        let mut data = [self.index.to_be_bytes(), self.digest.to_be_bytes()].concat();
        data.resize(SNAPSHOT_BYTES, self.digest as u8);
        data
    }

    fn decode(data: &[u8]) -> Option<State> {
        let (index, rest) = data.split_first_chunk()?;
        let (digest, _) = rest.split_first_chunk()?;
        Some(State { index: u64::from_be_bytes(*index), digest: u64::from_be_bytes(*digest) })
    }
}

impl Listener for Machine {
    fn commit(&self, index: u64, term: u64, payload: Bytes) {
        let mut state = self.state.lock();
        if index <= state.index {
            let detail = format!("{} applies {index} after {}", name(self.voter), state.index);
            self.oracle.violate("payloads come in order", detail);
        }
        let crc = crc(&[&payload]);
        *state = state.after(index, term, crc);
        self.oracle.applied(self.voter, (index, term), crc, state.digest);
    }

    fn load_snapshot(&self, index: u64, _term: u64, data: &[u8]) -> Result<(), String> {
        let loaded = State::decode(data).ok_or("cut off")?;
        self.oracle.loaded(self.voter, index, loaded.index, loaded.digest);
        let mut state = self.state.lock();
        if state.index > index {
            let detail = format!("{} goes back from {} to {index}", name(self.voter), state.index);
            self.oracle.violate("payloads come in order", detail);
        }
        *state = loaded;
        self.oracle.count(|counts| counts.installed += 1);
        Ok(())
    }

    fn snapshot(&self) -> Vec<u8> {
        self.oracle.count(|counts| counts.snapshots += 1);
        self.state.lock().encode()
    }

    fn snapshot_work(&self) -> SnapshotWork {
        if self.oracle.mutation() == Some(Mutation::SnapshotOfALaterState) {
            let state = self.state.clone();
            return Box::new(move || state.lock().encode());
        }
        let data = self.snapshot();
        Box::new(move || data)
    }

    fn leader_change(&self, leadership: Leadership) {
        if leadership.is_leader
            && std::mem::replace(&mut *self.led.lock(), leadership.term) != leadership.term
        {
            match self.store.read(0, u64::MAX) {
                Ok(entries) => {
                    let log: Vec<_> = entries.iter().map(|entry| position(&entry.log_id())).collect();
                    self.oracle.leads(self.voter, leadership.term, &log, self.store.first_index());
                }
                Err(error) => {
                    self.oracle.violate("a log can be read", format!("{}: {error}", name(self.voter)))
                }
            }
        }
        if leadership.ready {
            self.oracle.ready(self.voter, leadership.term, self.state.lock().index);
        }
    }
}
