//! The small files of a log directory and of a partition, and the producer state snapshot.
//!
//! An input is one byte that chooses the file, then its content.

use broker::log::proof;
use broker::log::{BatchContent, ProducerBatch, ProducerState};
use common::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use common::storage;

use crate::fuzz::scratch::Scratch;
use crate::fuzz::{Target, Trail, bound};
use crate::simulation::random::Random;

/// The choices of the first byte.
const FILES: [&str; 11] = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "cut-checkpoint",
    "leader-epoch-checkpoint",
    "compacted-end-checkpoint",
    "partition.metadata",
    "topic-record.metadata",
    "meta.properties",
    PRODUCER_SNAPSHOT,
];
const PRODUCER_SNAPSHOT: &str = "00000000000000000042.snapshot";
/// Of a producer snapshot: version, then the checksum of what follows.
const SNAPSHOT_HEADER_BYTES: usize = 6;

pub struct Checkpoints {
    scratch: Scratch,
}

impl Checkpoints {
    pub fn new() -> Checkpoints {
        let scratch = Scratch::new();
        // The two files that name a topic are read together.
        scratch.write("partition.metadata", b"version: 0\ntopic_id: -_v7-_v7-_v7-_v7-_v7-w\n");
        scratch.write("topic-record.metadata", b"version: 0\ntopic_record: 42\n");
        Checkpoints { scratch }
    }
}

fn file_of(selector: u8) -> &'static str {
    FILES[usize::from(selector) % FILES.len()]
}

fn producer_snapshot(content: &[u8], trail: &mut Trail) {
    let Some(state) = proof::decode_producer_snapshot(content, Offset(42)) else { return };
    trail.accept();
    trail.size(state.entries().len());
    assert_eq!(
        proof::decode_producer_snapshot(&proof::encode_producer_snapshot(&state), Offset(42)),
        Some(state.clone()),
        "a snapshot of what a snapshot held"
    );
    used(state);
}

/// What a log does with the state that it read.
fn used(mut state: ProducerState) {
    state.first_open_offset();
    state.first_undecided_offset(Offset(50));
    state.active();
    for producer_id in [0, 5, 6, 1 << 40] {
        for (content, transactional) in [
            (BatchContent::Data, false),
            (BatchContent::Data, true),
            (BatchContent::Marker { commit: false, coordinator_epoch: 3 }, true),
        ] {
            let batch = ProducerBatch {
                producer_id: ProducerId(producer_id),
                producer_epoch: ProducerEpoch(1),
                base_sequence: 12,
                first_offset: Offset(42),
                last_offset: Offset(45),
                timestamp_ms: 80,
                transactional,
                content,
            };
            if let Some(first) = state.duplicate_of(&batch) {
                first.first_offset();
            }
            // Refused or not, what is in a log is taken.
            drop(state.check(&batch, broker::log::AppendOrigin::Client));
            state.apply(&batch);
        }
    }
    state.expire(1_000, 100);
}

fn snapshot_sample() -> Vec<u8> {
    let mut state = ProducerState::at(Offset(0));
    for (producer_id, first_offset, transactional) in [(5, 0, false), (6, 4, true), (1 << 40, 8, true)] {
        state.apply(&ProducerBatch {
            producer_id: ProducerId(producer_id),
            producer_epoch: ProducerEpoch(1),
            base_sequence: 9,
            first_offset: Offset(first_offset),
            last_offset: Offset(first_offset + 3),
            timestamp_ms: 77,
            transactional,
            content: BatchContent::Data,
        });
    }
    proof::encode_producer_snapshot(&state)
}

impl Target for Checkpoints {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let offsets = "0\n3\norders 0 7\na.b_c-d 12 0\norders 1 9223372036854775807\n";
        let meta =
            "cluster.id=MkU3OEVBNTcwNTJENDM2Qk\ndirectory.id=-_v7-_v7-_v7-_v7-_v7-w\nnode.id=1\nversion=1\n";
        let content = |file: &str| match file {
            "cut-checkpoint" => "0\n2\n-_v7-_v7-_v7-_v7-_v7-w 0 17\nAAAAAAAAAAAAAAAAAAAAAQ 3 2\n",
            "leader-epoch-checkpoint" => "0\n3\n0 0\n4 10\n7 200\n",
            "compacted-end-checkpoint" => "0\n1\n77\n",
            "partition.metadata" => "version: 0\ntopic_id: -_v7-_v7-_v7-_v7-_v7-w\n",
            "topic-record.metadata" => "version: 0\ntopic_record: 42\n",
            "meta.properties" => meta,
            _ => offsets,
        };
        (0..)
            .zip(FILES)
            .map(|(selector, file)| match file {
                PRODUCER_SNAPSHOT => [&[selector], &snapshot_sample()[..]].concat(),
                file => [&[selector], content(file).as_bytes()].concat(),
            })
            .chain([vec![0, b'0', b'\n', b'0', b'\n'], vec![5, b'0', b'\n', b'0', b'\n']])
            .collect()
    }

    fn words(&self) -> Vec<Vec<u8>> {
        [
            "\n",
            " ",
            "0\n",
            "1\n",
            "\r\n",
            "version: 0\n",
            "topic_id: ",
            "AAAAAAAAAAAAAAAAAAAAAA",
            "node.id=",
            "\\u0041",
            "=",
            "\\\n",
            "#",
            "00000000-0000-0000-0000-000000000001",
            "\u{e9}",
            "+5",
        ]
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect()
    }

    fn repair(&self, input: &mut Vec<u8>, random: &mut Random) {
        if let Some((selector, content)) = input.split_first_mut()
            && file_of(*selector) == PRODUCER_SNAPSHOT
            && content.len() >= SNAPSHOT_HEADER_BYTES
            && !random.chance(60)
        {
            let crc = crc_fast::crc32_iscsi(&content[SNAPSHOT_HEADER_BYTES..]);
            content[2..SNAPSHOT_HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
        }
    }

    fn bound_bytes(&self, input: &[u8]) -> usize {
        bound(64 << 10, 64, input)
    }

    fn longest_input_bytes(&self) -> usize {
        500
    }

    fn run(&mut self, input: &[u8]) -> Trail {
        let mut trail = Trail::default();
        let Some((&selector, content)) = input.split_first() else { return trail };
        let file = file_of(selector);
        trail.note(selector % FILES.len() as u8);
        if file == PRODUCER_SNAPSHOT {
            producer_snapshot(content, &mut trail);
            return trail;
        }
        let directory = self.scratch.path();
        let path = self.scratch.write(file, content);
        let entries = match file {
            "cut-checkpoint" => trail.result(proof::read_cuts(directory)).map(|()| 1),
            "leader-epoch-checkpoint" => {
                trail.result(proof::read_epochs(directory)).flatten().map(|mut epochs| {
                    for epoch in [-1, 0, 4, 5, i32::MAX] {
                        epochs.end_offset_for(LeaderEpoch(epoch), Offset(1000));
                        epochs.epoch_at(Offset(epoch.into()));
                    }
                    epochs.truncate_from_end(Offset(100));
                    epochs.truncate_from_start(Offset(10));
                    epochs.assign(LeaderEpoch(5), Offset(90));
                    1
                })
            }
            "compacted-end-checkpoint" => trail.result(proof::read_compacted_end(directory)).map(|_| 1),
            "partition.metadata" | "topic-record.metadata" => {
                trail.result(proof::read_partition_metadata(directory)).map(usize::from)
            }
            "meta.properties" => trail.result(storage::load(directory)).map(|_| 1),
            _ => trail.result(proof::read_offsets(&path)).map(|offsets| offsets.len()),
        };
        // Others read it together with theirs.
        match file {
            "partition.metadata" => {
                drop(self.scratch.write(file, b"version: 0\ntopic_id: -_v7-_v7-_v7-_v7-_v7-w\n"))
            }
            "topic-record.metadata" => drop(self.scratch.write(file, b"version: 0\ntopic_record: 42\n")),
            _ => {}
        }
        if let Some(entries) = entries {
            trail.accept();
            trail.size(entries);
        }
        trail
    }
}
