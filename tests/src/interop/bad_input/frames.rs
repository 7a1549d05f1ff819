//! N1 to N4: frames, slow peers, versions, counts; and junk against the quorum's port.

use std::time::Duration;

use anyhow::{Result, ensure};
use protocol::ApiKey;

use super::Target;
use crate::raw::{Answer, RawConnection, Sequence, frame, request};

const ANSWER: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(300);
const SOCKET_REQUEST_MAX_BYTES: i32 = 104_857_600;
const UNSUPPORTED_VERSION: i16 = 35;
const IDLE_CONNECTIONS: usize = 2_000;
const CLAIMS: usize = 50;
const FUZZED_BODIES: usize = 12;

pub async fn run(target: &mut Target) -> Result<()> {
    for address in [target.broker.clone(), target.controller.clone()] {
        lengths(&address).await?;
        target.ensure_healthy("N1 frame lengths").await?;
        versions(&address).await?;
        target.ensure_healthy("N3 keys and versions").await?;
        counts(&address).await?;
        fuzz(&address).await?;
        target.ensure_healthy("N4 counts and noise").await?;
        slow_peers(target, &address).await?;
        target.ensure_healthy("N2 slow and silent peers").await?;
    }
    junk(&target.quorum.clone()).await?;
    target.ensure_healthy("junk on the quorum's port").await?;
    target.client.create_topic("after-junk", 1, 1, &[]).await?;
    Ok(())
}

pub async fn claims_on_every_port(target: &mut Target) -> Result<()> {
    for address in [target.broker.clone(), target.controller.clone()] {
        claims(target, &address).await?;
    }
    Ok(())
}

/// Lengths that are allowed, and then nothing comes: they cost no memory and take nobody's turn.
async fn claims(target: &mut Target, address: &str) -> Result<()> {
    let mut claimed = Vec::new();
    for _ in 0..CLAIMS {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&(SOCKET_REQUEST_MAX_BYTES - 1).to_be_bytes()).await;
        connection.send(&[0, 0, 0, 9]).await;
        claimed.push(connection);
    }
    target.ensure_healthy("N1 claimed lengths").await
}

fn api_versions() -> Vec<u8> {
    request(ApiKey::ApiVersions.code(), 0, 7, false, &[])
}

async fn lengths(address: &str) -> Result<()> {
    for length in [-1, i32::MIN, 0, 1, 7, SOCKET_REQUEST_MAX_BYTES + 1, i32::MAX] {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&length.to_be_bytes()).await;
        connection.send(&[0; 7][..length.clamp(0, 7) as usize]).await;
        let answer = connection.answer(ANSWER).await?;
        ensure!(answer == Answer::Closed, "{address}: frame length {length} got {answer:?}");
    }
    let whole = api_versions();
    for cut in 0..whole.len() {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&whole[..cut]).await;
        connection.finish_sending().await;
        let answer = connection.answer(ANSWER).await?;
        ensure!(answer == Answer::Closed, "{address}: a frame cut at byte {cut} got {answer:?}");
    }
    Ok(())
}

async fn versions(address: &str) -> Result<()> {
    for key in [-1, 4, 5, 95, 999, i16::MAX, i16::MIN] {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&request(key, 0, 1, false, &[])).await;
        let answer = connection.answer(ANSWER).await?;
        ensure!(answer == Answer::Closed, "{address}: API key {key} got {answer:?}");
    }
    for key in ApiKey::ALL {
        let spec = key.spec();
        for version in [-1, spec.min_version - 1, spec.max_version + 1, i16::MAX] {
            if *key == ApiKey::ApiVersions || spec.supports(version) {
                continue;
            }
            let mut connection = RawConnection::open(address).await?;
            connection.send(&request(key.code(), version, 1, false, &[0; 16])).await;
            let answer = connection.answer(ANSWER).await?;
            ensure!(answer != Answer::Silence, "{address}: {} version {version} got no answer", key.name());
        }
    }
    // The one that every client must be able to read.
    for version in [-1, 6, 127] {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&request(ApiKey::ApiVersions.code(), version, 4242, version >= 3, &[])).await;
        match connection.answer(ANSWER).await? {
            Answer::Frame(answer) => {
                let expected =
                    [4242_i32.to_be_bytes().as_slice(), &UNSUPPORTED_VERSION.to_be_bytes()].concat();
                ensure!(answer.starts_with(&expected), "{address}: ApiVersions {version} got {answer:?}");
            }
            other => ensure!(version < 0, "{address}: ApiVersions {version} got {other:?}"),
        }
    }
    // A flexible header where the version has none: a byte too many.
    let mut connection = RawConnection::open(address).await?;
    connection.send(&request(ApiKey::ApiVersions.code(), 0, 1, true, &[])).await;
    connection.answer(ANSWER).await?;
    Ok(())
}

/// Counts and lengths that lie.
async fn counts(address: &str) -> Result<()> {
    let metadata = ApiKey::Metadata.code();
    let int = |value: i32| value.to_be_bytes().to_vec();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("array of -2", request(metadata, 1, 1, false, &int(-2))),
        ("array of 2^31-1", request(metadata, 1, 1, false, &int(i32::MAX))),
        ("string of 32767", request(metadata, 1, 1, false, &[0, 0, 0, 1, 0x7f, 0xff])),
        ("string of -2", request(metadata, 1, 1, false, &[0, 0, 0, 1, 0xff, 0xfe])),
        ("varint of 6 bytes", request(metadata, 9, 1, true, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01])),
        ("varint of 10 bytes", request(metadata, 9, 1, true, &[0xff; 10])),
        ("compact array of 2^32-2", request(metadata, 9, 1, true, &[0xff, 0xff, 0xff, 0xff, 0x0f])),
        ("tags of 2^32-1", request(metadata, 9, 1, true, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f])),
        (
            "header tags of 2^28",
            frame(&[&[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff][..], &[0xff, 0xff, 0xff, 0x7f]].concat()),
        ),
        ("client id of 32767", frame(&[0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0])),
        (
            "produce, topics of 2^31-1",
            request(0, 3, 1, false, &[&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9][..], &int(i32::MAX)].concat()),
        ),
        (
            "produce, records of 2^31-1",
            request(
                0,
                3,
                1,
                false,
                &[
                    &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9][..],
                    &int(1),
                    &[0, 1, b't'],
                    &int(1),
                    &int(0),
                    &int(i32::MAX),
                ]
                .concat(),
            ),
        ),
        (
            "fetch, topics of 2^31-1",
            request(
                1,
                4,
                1,
                false,
                &[&[0xff; 4][..], &int(0), &int(0), &int(1), &[0], &int(i32::MAX)].concat(),
            ),
        ),
        (
            "create, nested arrays",
            request(
                19,
                2,
                1,
                false,
                &[&int(1)[..], &[0, 1, b'x'], &int(1), &[0, 1], &int(i32::MAX)].concat(),
            ),
        ),
        ("delete topics of 2^31-1", request(20, 1, 1, false, &int(i32::MAX))),
        ("describe configs of 2^31-1", request(32, 1, 1, false, &int(i32::MAX))),
    ];
    for (what, bytes) in cases {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&bytes).await;
        let answer = connection.answer(ANSWER).await?;
        ensure!(answer != Answer::Silence, "{address}: {what} got no answer");
    }
    Ok(())
}

/// Noise as the body of every API in its first and last version.
async fn fuzz(address: &str) -> Result<()> {
    let mut numbers = Sequence::new(0x6b61_6761_6d69);
    for key in ApiKey::ALL {
        let spec = key.spec();
        if spec.max_version < spec.min_version {
            continue;
        }
        for version in [spec.min_version, spec.max_version] {
            for _ in 0..FUZZED_BODIES {
                let length = (numbers.number() % 200) as usize;
                let mut body = numbers.bytes(length);
                if length > 4 && numbers.number().is_multiple_of(2) {
                    body[..4].copy_from_slice(&[0, 0, 0, 1]);
                }
                let mut connection = RawConnection::open(address).await?;
                connection.send(&request(key.code(), version, 1, key.is_flexible(version), &body)).await;
                // An answer or an end; a request that may wait by its own time-out is not waited for.
                connection.answer(Duration::from_millis(40)).await?;
            }
        }
    }
    Ok(())
}

async fn slow_peers(target: &mut Target, address: &str) -> Result<()> {
    let mut peers = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        peers.push(RawConnection::open(address).await?);
    }
    // A byte at a time, on all of them.
    for byte in api_versions().iter().take(6) {
        for peer in &mut peers {
            peer.send(&[*byte]).await;
        }
        target.ensure_healthy("a byte on each of many connections").await?;
    }
    // Asked much, read nothing.
    let mut deaf = RawConnection::open(address).await?;
    let metadata = request(ApiKey::ApiVersions.code(), 0, 1, false, &[]);
    let flood = metadata.repeat(2_000);
    for _ in 0..20 {
        let sending = deaf.send(&flood);
        if tokio::time::timeout(SHORT, sending).await.is_err() {
            break;
        }
    }
    target.ensure_healthy("a peer that reads no answer").await?;
    // Ends with answers unread: the kernel resets it.
    drop(deaf);
    // The sending direction ended: the answer may still be wanted.
    let mut half = RawConnection::open(address).await?;
    half.send(&api_versions()).await;
    half.finish_sending().await;
    ensure!(half.answer(ANSWER).await? != Answer::Silence, "{address}: a half-closed connection stays open");
    drop(peers);
    Ok(())
}

async fn junk(address: &str) -> Result<()> {
    let mut numbers = Sequence::new(77);
    let noise: Vec<Vec<u8>> = (0..20).map(|_| numbers.bytes(3_000)).collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut inputs: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        api_versions(),
        // A frame that claims 16 MiB, then settings of nonsense.
        [&preface[..], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
        [&preface[..], &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]].concat(),
    ];
    for noise in noise {
        inputs.push([&preface[..], &noise].concat());
        inputs.push(noise);
    }
    for input in inputs {
        let mut connection = RawConnection::open(address).await?;
        connection.send(&input).await;
        // HTTP/2 frames are no Kafka frames: what comes back is not looked at.
        let _ = connection.answer(Duration::from_millis(20)).await;
    }
    Ok(())
}
