//! The readers of what a voter has stored and of what other voters send, for the fuzzer in `tests`.

use std::fs::File;
use std::io;

use bytes::Bytes;
use openraft::entry::RaftEntry as _;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::{EntryPayload, Membership};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ME, identity, log_id};
use crate::config::{Identity, VoterId};
use crate::network::decode;
use crate::store::crc;
use crate::store::keys::{self, EntryDecoder};
use crate::store::manifest::{MANIFEST, Manifest};
use crate::type_config::{Entry, LogId, Payload, SnapshotMeta, TypeConfig, Vote};

/// What bytes are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Identity,
    Founding,
    Vote,
    Committed,
    Purged,
    SnapshotName,
    Manifest,
    /// An entry in one part of the store.
    Entry,
    /// An entry in two.
    EntryOfTwoParts,
    VoteCall,
    AppendCall,
    TransferCall,
    SnapshotCall,
}

/// Index of the entries that are read.
const INDEX: u64 = 7;
/// In front of an entry: CRC, length.
const ENTRY_HEADER_BYTES: usize = 8;

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::Identity,
        Kind::Founding,
        Kind::Vote,
        Kind::Committed,
        Kind::Purged,
        Kind::SnapshotName,
        Kind::Manifest,
        Kind::Entry,
        Kind::EntryOfTwoParts,
        Kind::VoteCall,
        Kind::AppendCall,
        Kind::TransferCall,
        Kind::SnapshotCall,
    ];

    fn mark(self) -> Option<&'static [u8]> {
        Some(match self {
            Kind::Identity => keys::IDENTITY,
            Kind::Founding => keys::FOUNDING,
            Kind::Vote => keys::VOTE,
            Kind::Committed => keys::COMMITTED,
            Kind::Purged => keys::PURGED,
            Kind::SnapshotName => keys::SNAPSHOT,
            Kind::Manifest => MANIFEST,
            _ => return None,
        })
    }

    pub fn read(self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Kind::Identity => mark::<Identity>(keys::IDENTITY, bytes),
            Kind::Founding => mark::<Vec<VoterId>>(keys::FOUNDING, bytes),
            Kind::Vote => mark::<Vote>(keys::VOTE, bytes),
            Kind::Committed => mark::<LogId>(keys::COMMITTED, bytes),
            Kind::Purged => mark::<LogId>(keys::PURGED, bytes),
            Kind::SnapshotName => mark::<String>(keys::SNAPSHOT, bytes),
            Kind::Manifest => mark::<Manifest>(MANIFEST, bytes),
            Kind::Entry => entry(&[bytes]),
            Kind::EntryOfTwoParts => {
                let (first, second) = bytes.split_at(bytes.len() / 2);
                entry(&[first, second])
            }
            Kind::VoteCall => call::<VoteRequest<TypeConfig>>(bytes),
            Kind::AppendCall => call::<AppendEntriesRequest<TypeConfig>>(bytes),
            Kind::TransferCall => call::<TransferLeaderRequest<TypeConfig>>(bytes),
            Kind::SnapshotCall => call::<(Vote, SnapshotMeta, u64)>(bytes),
        }
    }

    /// Makes the checksum, and an entry's length, those of the bytes.
    pub fn reseal(self, bytes: &mut [u8]) {
        if let Some(name) = self.mark()
            && let Some((sum, body)) = bytes.split_first_chunk_mut::<4>()
        {
            *sum = crc(&[name, body]).to_be_bytes();
        }
        if matches!(self, Kind::Entry | Kind::EntryOfTwoParts) && bytes.len() >= ENTRY_HEADER_BYTES {
            let (header, data) = bytes.split_at_mut(ENTRY_HEADER_BYTES);
            header[..4].copy_from_slice(&crc(&[&INDEX.to_be_bytes(), data]).to_be_bytes());
            header[4..].copy_from_slice(&(data.len() as u32).to_be_bytes());
        }
    }
}

fn mark<T: DeserializeOwned>(name: &[u8], bytes: &[u8]) -> Result<(), String> {
    keys::unseal::<T>(name, bytes).map(drop).map_err(|error| error.to_string())
}

fn call<T: DeserializeOwned>(bytes: &[u8]) -> Result<(), String> {
    decode::<T>(bytes).map(drop).map_err(|error| error.to_string())
}

fn entry(parts: &[&[u8]]) -> Result<(), String> {
    let mut decoder = EntryDecoder::new();
    for (part, bytes) in (0..).zip(parts) {
        decoder.push(&keys::entry_key(INDEX, part), bytes).map_err(|error| error.to_string())?;
    }
    decoder.finish().map_err(|error| error.to_string())
}

/// Reads a snapshot file; gives the length of its data.
pub fn read_snapshot(file: &File) -> io::Result<usize> {
    crate::snapshot::read(file).map(|(_, data)| data.len())
}

/// Valid bytes of each kind.
pub fn samples() -> Vec<(Kind, Vec<u8>)> {
    let voters = [ME, VoterId { node_id: 2, ..ME }, VoterId { node_id: 3, ..ME }];
    let mut manifest = Manifest { number: 9, first_index: 3, end_index: 8, ..Manifest::default() };
    manifest.put(keys::VOTE, b"vote");
    manifest.put(keys::IDENTITY, b"identity");
    let vote = Vote::new(4, ME);
    let normal = Entry::new(log_id(4, INDEX), EntryPayload::Normal(Payload(Bytes::from_static(&[7; 40]))));
    let blank = Entry::new(log_id(4, INDEX), EntryPayload::Blank);
    let nodes = voters.map(|voter| (voter, openraft::impls::BasicNode::new("host:9093")));
    let membership = Membership::new(
        vec![voters.into(), voters[..2].iter().copied().collect()],
        std::collections::BTreeMap::from(nodes),
    );
    let mut samples: Vec<(Kind, Vec<u8>)> = Vec::new();
    let mut seal =
        |kind: Kind, sealed: io::Result<Vec<u8>>| samples.extend(sealed.ok().map(|bytes| (kind, bytes)));
    seal(Kind::Identity, keys::seal(keys::IDENTITY, &identity()));
    seal(Kind::Founding, keys::seal(keys::FOUNDING, &voters.to_vec()));
    seal(Kind::Vote, keys::seal(keys::VOTE, &vote));
    seal(Kind::Committed, keys::seal(keys::COMMITTED, &log_id(4, 7)));
    seal(Kind::Purged, keys::seal(keys::PURGED, &log_id(3, 2)));
    seal(Kind::SnapshotName, keys::seal(keys::SNAPSHOT, &"00000000000000000007.snapshot"));
    seal(Kind::Manifest, keys::seal(MANIFEST, &manifest));
    let mut entries = vec![normal, blank];
    entries.extend(
        membership.ok().map(|membership| Entry::new(log_id(4, INDEX), EntryPayload::Membership(membership))),
    );
    for entry in &entries {
        for kind in [Kind::Entry, Kind::EntryOfTwoParts] {
            let stored = keys::encode_entry(INDEX, entry);
            seal(kind, stored.map(|parts| parts.into_iter().flat_map(|(_, bytes)| bytes).collect()));
        }
    }
    fn body(message: &impl Serialize) -> io::Result<Vec<u8>> {
        postcard::to_allocvec(message).map_err(io::Error::other)
    }
    let last_log_id = Some(log_id(4, INDEX));
    seal(Kind::VoteCall, body(&VoteRequest::<TypeConfig>::new(vote, last_log_id)));
    let append = AppendEntriesRequest::<TypeConfig> {
        vote,
        prev_log_id: last_log_id,
        entries,
        leader_commit: last_log_id,
    };
    seal(Kind::AppendCall, body(&append));
    seal(Kind::TransferCall, body(&TransferLeaderRequest::<TypeConfig>::new(vote, ME, last_log_id)));
    seal(
        Kind::SnapshotCall,
        body(&(vote, SnapshotMeta { last_log_id, ..SnapshotMeta::default() }, 1000_u64)),
    );
    samples
}
