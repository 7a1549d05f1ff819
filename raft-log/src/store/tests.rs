//! openraft's own suite on these stores, and what happens when the process or the disk fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use openraft::entry::RaftEntry as _;
use openraft::impls::leader_id_std::LeaderId;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::vote::RaftLeaderId as _;
use openraft::{EntryPayload, StorageError};
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

use super::*;
use crate::gate::Gate;
use crate::leadership::Leadership;
use crate::listener::Listener;
use crate::network::check_entries;
use crate::snapshot::Snapshots;
use crate::state_machine::StateMachine;
use crate::type_config::{Entry, LogId, Payload, TypeConfig, Vote};

impl From<u64> for VoterId {
    fn from(node_id: u64) -> VoterId {
        VoterId { node_id, directory_id: Uuid::nil() }
    }
}

struct Deaf;

impl Listener for Deaf {
    fn commit(&self, _index: u64, _term: u64, _payload: Bytes) {}

    fn load_snapshot(&self, _index: u64, _term: u64, _data: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn leader_change(&self, _leadership: Leadership) {}
}

struct Builder;

impl StoreBuilder<TypeConfig, Store, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Store, StateMachine), StorageError<TypeConfig>> {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).unwrap();
        let snapshots = Snapshots::open(directory.path().join("snapshots"), store.clone()).unwrap();
        let machine = StateMachine::new(Gate::new(Arc::new(Deaf)), snapshots, watch::channel(None).0);
        Ok((directory, store, machine))
    }
}

#[tokio::test]
async fn passes_openrafts_suite() {
    Suite::test_all(Builder).await.unwrap();
}

fn identity() -> Identity {
    Identity { cluster_id: "test".into(), voter: VoterId::from(1) }
}

fn open(directory: &Path) -> Result<Store, OpenError> {
    Store::open(&directory.join("quorum"), &identity())
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId::new(term, VoterId::from(1)).to_committed(), index)
}

fn entry(term: u64, index: u64, bytes: usize) -> Entry {
    let data: Vec<u8> = (0..bytes).map(|position| (position as u64 * 31 + index) as u8).collect();
    Entry::new(log_id(term, index), EntryPayload::Normal(Payload(data.into())))
}

async fn read(store: &mut Store) -> Vec<Entry> {
    store.read(0, u64::MAX).unwrap()
}

/// The directory as it would be found after the process was killed now.
fn killed(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_directory(directory, copy.path());
    copy
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let vote = Vote::new(3, VoterId::from(1));
    store.write_vote(&vote).await.unwrap();
    store.save_founding(vec![VoterId::from(1), VoterId::from(2)]).await.unwrap();
    let mut expected = Vec::new();
    for index in 0..200 {
        // Some span several parts.
        let next = entry(3, index, if index % 50 == 7 { 300_000 } else { index as usize });
        expected.push(next.clone());
        store.write_durably([next]).await.unwrap();
    }
    store.note_committed(Some(log_id(3, 150))).unwrap();
    store.cut_after(Some(log_id(3, 189))).await.unwrap();
    expected.truncate(190);
    store.write_durably([entry(4, 190, 5)]).await.unwrap();
    expected.push(entry(4, 190, 5));
    store.drop_upto(log_id(3, 19)).await.unwrap();
    expected.drain(..20);

    let copy = killed(directory.path());
    drop(store);
    for round in ["after a kill", "after a clean stop"] {
        let mut store = open(copy.path()).unwrap();
        assert_eq!(read(&mut store).await, expected, "{round}");
        assert_eq!(store.vote(), Some(vote), "{round}");
        assert_eq!(store.committed(), Some(log_id(3, 150)), "{round}");
        assert_eq!(store.founding().len(), 2, "{round}");
        assert_eq!(store.ends(), (Some(log_id(3, 19)), Some(log_id(4, 190))), "{round}");
        store.close();
        assert!(store.write_vote(&vote).await.is_err());
    }
}

#[tokio::test]
async fn old_entries_are_read_from_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path()).unwrap();
    let expected: Vec<Entry> = (0..60).map(|index| entry(1, index, 1 << 20)).collect();
    for next in &expected {
        store.write_durably([next.clone()]).await.unwrap();
    }
    assert!(store.shared.memory.read().tail_index() > 10, "the cache is bounded");
    assert_eq!(read(&mut store).await, expected);
    assert_eq!(store.read(5, 12).unwrap(), expected[5..12]);
    assert_eq!(store.read_for_replication(3, 60).unwrap(), expected[3..4], "a batch is bounded");
}

#[tokio::test]
async fn no_entry_is_written_behind_a_hole() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    store.write_durably((0..10).map(|index| entry(1, index, 5))).await.unwrap();
    let error = store.write_durably([entry(1, 12, 5)]).await.unwrap_err();
    assert_eq!(error.to_string(), "entry 12 cannot be appended to a log that ends at 10");
    store.write_durably([entry(1, 10, 5)]).await.unwrap();
    assert_eq!(store.read(0, 20).unwrap().len(), 11);
}

/// A leader that purges while it reads for a follower sends nothing of what is left.
#[tokio::test]
async fn what_is_left_of_a_purged_range_is_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    store.write_durably((0..10).map(|index| entry(1, index, 5))).await.unwrap();
    store.drop_upto(log_id(1, 3)).await.unwrap();
    let left = store.read_for_replication(3, 10).unwrap();
    assert_eq!(check_entries(Some(log_id(1, 2)), &left), Err("entry 4 where 3 follows".into()));
    assert_eq!(check_entries(None, &left), Err("entry 4 where 0 follows".into()));
    assert_eq!(check_entries(Some(log_id(1, 3)), &left), Ok(()));
    assert!(check_entries(Some(log_id(1, 3)), &[entry(1, 4, 5), entry(1, 6, 5)]).is_err());
    assert_eq!(check_entries(Some(log_id(1, 3)), &[]), Ok(()));
}

fn database(directory: &Path) -> PathBuf {
    directory.join("quorum").join("store")
}

#[tokio::test]
async fn a_damaged_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    store.write_vote(&Vote::new(1, VoterId::from(1))).await.unwrap();
    store.write_durably((0..10).map(|index| entry(1, index, 100_000))).await.unwrap();
    store.close();

    type Damage = fn(&sled::Db);
    let damages: [(&str, Damage); 6] = [
        ("entry 4 does not match its checksum", |database| flip(database, &keys::entry_key(4, 0), 200)),
        ("entry 4 does not match its checksum", |database| flip(database, &keys::entry_key(4, 1), 0)),
        ("entry 4 lacks a part", |database| drop(database.remove(keys::entry_key(4, 1)).unwrap())),
        ("entry 4 has no beginning", |database| drop(database.remove(keys::entry_key(4, 0)).unwrap())),
        ("its marks are not those that were written last", |database| flip(database, keys::VOTE, 5)),
        ("it has lost its identity", |database| drop(database.remove(keys::IDENTITY).unwrap())),
    ];
    for (expected, damage) in damages {
        let copy = killed(directory.path());
        let raw = sled::open(database(copy.path())).unwrap();
        damage(&raw);
        raw.flush().unwrap();
        drop(raw);
        match open(copy.path()).map(drop) {
            Err(OpenError::Damaged { reason, .. }) => assert!(reason.contains(expected), "{reason}"),
            other => panic!("{expected}: {other:?}"),
        }
    }

    let copy = killed(directory.path());
    let raw = sled::open(database(copy.path())).unwrap();
    for part in 0..2 {
        raw.remove(keys::entry_key(4, part)).unwrap();
    }
    drop(raw);
    assert!(matches!(open(copy.path()), Err(OpenError::Damaged { .. })), "a missing entry");

    // An emptied store must not pass for a new one: its vote is gone.
    let copy = killed(directory.path());
    fs::remove_dir_all(database(copy.path())).unwrap();
    assert!(matches!(open(copy.path()), Err(OpenError::Damaged { .. })), "an emptied store");

    let other = Identity { voter: VoterId::from(2), ..identity() };
    let foreign = Store::open(&directory.path().join("quorum"), &other).map(drop);
    assert!(matches!(foreign, Err(OpenError::NotOurs { .. })), "{foreign:?}");
    open(directory.path()).unwrap().close();
}

fn flip(database: &sled::Db, key: &[u8], position: usize) {
    let mut value = database.get(key).unwrap().unwrap().to_vec();
    value[position] ^= 1;
    database.insert(key, value).unwrap();
}

#[tokio::test]
async fn a_log_that_lacks_committed_entries_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    store.write_durably((0..10).map(|index| entry(1, index, 1))).await.unwrap();
    store.note_committed(Some(log_id(1, 9))).unwrap();
    store.check_complete(None).unwrap();
    store.cut_after(Some(log_id(1, 7))).await.unwrap();
    store.check_complete(None).unwrap_err();
    store.check_complete(Some(log_id(1, 9))).unwrap();
    store.drop_upto(log_id(1, 3)).await.unwrap();
    store.note_committed(Some(log_id(1, 7))).unwrap();
    store.check_complete(None).unwrap_err();
    store.check_complete(Some(log_id(1, 3))).unwrap();
}

/// Q5: what of the last batch reached the disk ends at any of its bytes.
#[tokio::test]
async fn q05_a_batch_torn_at_any_byte_is_there_or_it_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    store.write_vote(&Vote::new(1, VoterId::from(1))).await.unwrap();
    let old_entries: Vec<Entry> = (0..5).map(|index| entry(1, index, 30)).collect();
    store.write_durably(old_entries.clone()).await.unwrap();
    let before = killed(directory.path());
    let last = entry(1, 5, 30);
    store.write_durably([last.clone()]).await.unwrap();
    let new_entries = [old_entries.clone(), vec![last]].concat();
    let after = killed(directory.path());
    store.close();
    let read_file = |directory: &TempDir| fs::read(database(directory.path()).join("db")).unwrap();
    let (old, new) = (read_file(&before), read_file(&after));
    let differs = |at: &usize| old.get(*at) != new.get(*at);
    let first = (0..new.len()).find(differs).unwrap();
    let end = (0..new.len()).rev().find(differs).unwrap() + 1;
    let mut outcomes = [0, 0];
    for cut in first..=end {
        let torn = killed(before.path());
        let bytes = [&new[..cut], old.get(cut..).unwrap_or_default()].concat();
        fs::write(database(torn.path()).join("db"), bytes).unwrap();
        let mut store = open(torn.path()).unwrap();
        let found = read(&mut store).await;
        store.close();
        let is_whole = found.len() == new_entries.len();
        let expected = if is_whole { &new_entries } else { &old_entries };
        assert_eq!(found, *expected, "cut at {cut} of {first}..{end}");
        outcomes[usize::from(is_whole)] += 1;
    }
    assert!(outcomes[0] > 50 && outcomes[1] > 0, "{outcomes:?} of {first}..{end}");
}
