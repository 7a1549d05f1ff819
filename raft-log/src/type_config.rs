//! Our one openraft configuration.

use std::fmt;

use bytes::Bytes;
use openraft::impls::{BasicNode, leader_id_std};
use openraft::{EntryPayload, RaftTypeConfig, alias};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::config::VoterId;
use crate::state_machine::StateMachine;

/// The bytes of an entry; a shared slice, so that replication, application and the cache never copy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub Bytes);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        struct Slice;
        impl Visitor<'_> for Slice {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(Bytes::copy_from_slice(bytes)))
            }
        }
        deserializer.deserialize_bytes(Slice)
    }
}

/// One leader a term: the term is the leader epoch of the metadata log.
pub(crate) type LeaderId = leader_id_std::LeaderId<u64, VoterId>;

openraft::declare_raft_types!(
    pub(crate) TypeConfig:
        D = Payload,
        R = (),
        NodeId = VoterId,
        Node = BasicNode,
        LeaderId = LeaderId,
);

/// Our types on any runtime. The product has one; the simulation brings its own, and runs the same store,
/// state machine and rules of membership on it.
pub(crate) trait Types:
    RaftTypeConfig<
        D = Payload,
        R = (),
        NodeId = VoterId,
        Node = BasicNode,
        Term = u64,
        LeaderId = LeaderId,
        Vote = Vote,
        Payload = EntryPayload<Payload, VoterId, BasicNode>,
        Entry = Entry,
    >
{
}

impl<C> Types for C where
    C: RaftTypeConfig<
            D = Payload,
            R = (),
            NodeId = VoterId,
            Node = BasicNode,
            Term = u64,
            LeaderId = LeaderId,
            Vote = Vote,
            Payload = EntryPayload<Payload, VoterId, BasicNode>,
            Entry = Entry,
        >
{
}

pub(crate) type Raft<C = TypeConfig> = openraft::Raft<C, StateMachine>;
pub(crate) type Entry = alias::EntryOf<TypeConfig>;
pub(crate) type LogId = alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = alias::VoteOf<TypeConfig>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<TypeConfig>;
