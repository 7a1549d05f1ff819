//! N6: record batches that no producer writes, and idempotent producers that break the rules.

use anyhow::{Result, ensure};
use bytes::Bytes;
use protocol::ErrorCode;
use protocol::record_batch::{BatchBuilder, batches, set_crc, set_leader_epoch};

use super::Target;
use crate::client::{ProducerIdentity, error_name};

const TOPIC: &str = "t";
// Where the fields of a batch's header lie.
const LENGTH: usize = 8;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const RECORDS_COUNT: usize = 57;
const BODY: usize = 61;

fn good() -> Vec<u8> {
    BatchBuilder::new().record(1, Some(b"k"), Some(b"value")).record(2, None, Some(b"other")).build().to_vec()
}

/// A good batch with some bytes replaced and, where asked, a CRC that fits again.
fn patched(at: usize, bytes: &[u8], fix_crc: bool) -> Vec<u8> {
    let mut batch = good();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    if fix_crc {
        set_crc(&mut batch);
    }
    batch
}

pub async fn run(target: &mut Target) -> Result<()> {
    target.client.create_topic(TOPIC, 2, 1, &[]).await?;
    let mut findings = Vec::new();
    for outcome in [
        refused(target).await,
        forged_epoch(target).await,
        sequences(target).await,
        unknown_topics(target).await,
    ] {
        findings.extend(outcome.err().map(|error| format!("{error:#}")));
    }
    ensure!(findings.is_empty(), "{}", findings.join("; "));
    target.ensure_healthy("N6 record batches").await
}

async fn refused(target: &mut Target) -> Result<()> {
    let corrupt = Some(ErrorCode::CorruptMessage);
    let any = None;
    let transactional =
        BatchBuilder::new().producer(1, 0, 0).transactional().record(1, None, Some(b"v")).build();
    let mut cases: Vec<(&str, Vec<u8>, Option<ErrorCode>)> = vec![
        ("wrong CRC", patched(CRC, &[1, 2, 3, 4], false), corrupt),
        ("a flipped value byte", patched(good().len() - 2, &[0xff], false), corrupt),
        ("magic 0", patched(MAGIC, &[0], true), any),
        ("magic 1", patched(MAGIC, &[1], true), any),
        ("magic 3", patched(MAGIC, &[3], true), any),
        ("control bit", patched(ATTRIBUTES, &[0, 0x20], true), any),
        ("codec 7", patched(ATTRIBUTES, &[0, 7], true), any),
        ("last offset delta 7 of 2 records", patched(LAST_OFFSET_DELTA, &[0, 0, 0, 7], true), any),
        ("negative last offset delta", patched(LAST_OFFSET_DELTA, &[0xff; 4], true), any),
        ("3 records of 2", patched(RECORDS_COUNT, &[0, 0, 0, 3], true), any),
        ("1 record of 2", patched(RECORDS_COUNT, &[0, 0, 0, 1], true), any),
        ("2^31-1 records", patched(RECORDS_COUNT, &[0x7f, 0xff, 0xff, 0xff], true), any),
        ("-1 records", patched(RECORDS_COUNT, &[0xff; 4], true), any),
        ("a length past the end", patched(LENGTH, &[0, 0, 0x10, 0], false), any),
        ("a negative length", patched(LENGTH, &[0xff; 4], false), any),
        ("a record's length past the batch", patched(BODY, &[0x7e], true), any),
        ("half a header", good()[..30].to_vec(), any),
        ("nothing", Vec::new(), any),
        ("two batches", [good(), good()].concat(), any),
        ("transactional, without a transaction", transactional.to_vec(), any),
    ];
    for codec in 1..=4_u8 {
        let mut batch = good();
        batch[ATTRIBUTES + 1] = codec;
        set_crc(&mut batch);
        cases.push(("a body that is not compressed as said", batch, any));
    }
    let before = target.client.end_offset(TOPIC, 0, false).await?;
    let mut findings = Vec::new();
    for (what, batch, wanted) in cases {
        // A batch that is no batch may end the connection; nothing may be written.
        let Ok(produced) = target.client.produce(TOPIC, 0, Bytes::from(batch)).await else { continue };
        let code = ErrorCode::from_code(produced.error_code);
        if produced.error_code == 0 {
            findings.push(format!("a batch with {what} was taken"));
        } else if wanted.is_some() && code != wanted {
            findings
                .push(format!("a batch with {what} was refused with {}", error_name(produced.error_code)));
        }
    }
    ensure!(findings.is_empty(), "{}", findings.join("; "));
    let after = target.client.end_offset(TOPIC, 0, false).await?;
    ensure!(before == after, "refused batches moved the end from {before} to {after}");
    let stable = target.client.end_offset(TOPIC, 0, true).await?;
    ensure!(stable == after, "a refused batch opened a transaction at {stable}");
    Ok(())
}

/// The leader's epoch is the leader's to write.
async fn forged_epoch(target: &mut Target) -> Result<()> {
    let mut batch = good();
    set_leader_epoch(&mut batch, 77);
    let produced = target.client.produce(TOPIC, 0, Bytes::from(batch)).await?;
    ensure!(produced.error_code == 0, "a forged leader epoch: {produced:?}");
    let fetched = target.client.fetch(TOPIC, 0, produced.base_offset, false).await?;
    let epochs: Vec<i32> =
        batches(&fetched.records).map(|batch| Ok(batch?.header.leader_epoch)).collect::<Result<_>>()?;
    ensure!(!epochs.is_empty() && !epochs.contains(&77), "leader epochs in the log: {epochs:?}");
    Ok(())
}

async fn sequences(target: &mut Target) -> Result<()> {
    let identity = target.client.init_producer_id().await?;
    let batch = |identity: ProducerIdentity, sequence: i32| {
        BatchBuilder::new()
            .producer(identity.id, identity.epoch, sequence)
            .record(1, None, Some(b"v"))
            .build()
    };
    let mut produce =
        async |identity, sequence| target.client.produce(TOPIC, 1, batch(identity, sequence)).await;
    let first = produce(identity, 0).await?;
    ensure!(first.error_code == 0, "sequence 0: {first:?}");
    let again = produce(identity, 0).await?;
    ensure!(
        again.error_code == 0 && again.base_offset == first.base_offset,
        "sequence 0 again: {again:?}, first {first:?}"
    );
    let gap = produce(identity, 5).await?;
    ensure!(
        gap.error_code == ErrorCode::OutOfOrderSequenceNumber.code(),
        "sequence 5 after 0: {}",
        error_name(gap.error_code)
    );
    let next = produce(identity, 1).await?;
    ensure!(next.error_code == 0 && next.base_offset == first.base_offset + 1, "sequence 1: {next:?}");
    let newer = ProducerIdentity { epoch: identity.epoch + 1, ..identity };
    let bumped = produce(newer, 0).await?;
    ensure!(bumped.error_code == 0, "sequence 0 of the next producer epoch: {bumped:?}");
    let fenced = produce(identity, 2).await?;
    ensure!(
        fenced.error_code == ErrorCode::InvalidProducerEpoch.code(),
        "an old producer epoch: {}",
        error_name(fenced.error_code)
    );
    Ok(())
}

async fn unknown_topics(target: &mut Target) -> Result<()> {
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let response = target.client.metadata(Some("no-such-topic")).await?;
    ensure!(response.topics.iter().all(|topic| topic.error_code == unknown), "{:?}", response.topics);
    let response = target.client.metadata(Some("a/b")).await?;
    ensure!(response.topics.iter().all(|topic| topic.error_code != 0), "{:?}", response.topics);
    // A partition that is not there, at a broker that leads others.
    let leader = target.client.leader(TOPIC, 0).await?;
    target.client.assume_leader(TOPIC, 99, &leader);
    target.client.assume_leader("no-such-topic", 0, &leader);
    for (topic, partition) in [(TOPIC, 99), ("no-such-topic", 0)] {
        let produced = target.client.produce(topic, partition, Bytes::from(good())).await?;
        ensure!(produced.error_code == unknown, "produce to {topic}-{partition}: {produced:?}");
        let fetched = target.client.fetch(topic, partition, 0, false).await?;
        ensure!(
            fetched.error_code == unknown,
            "fetch of {topic}-{partition}: {}",
            error_name(fetched.error_code)
        );
    }
    let fetched = target.client.fetch(TOPIC, 0, 1 << 40, false).await?;
    ensure!(
        fetched.error_code == ErrorCode::OffsetOutOfRange.code(),
        "fetch beyond the end: {}",
        error_name(fetched.error_code)
    );
    Ok(())
}
