//! Cases Q7, Q8 and Q9 of what breaks a quorum: snapshots that are cut off on their way, leaders that die
//! during a change of the voters, and calls that no voter makes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use protocol::proto::raft as wire;
use protocol::proto::raft::raft_client::RaftClient;
use raft_log::MembershipError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use uuid::Uuid;

use crate::quorum::{CLUSTER, PATIENCE, Quorum, eventually, payloads};

/// In front of one voter: each connection ends after so many bytes towards it.
struct Cutter {
    address: SocketAddr,
    limit_bytes: Arc<AtomicU64>,
    cuts: Arc<AtomicUsize>,
}

impl Cutter {
    async fn start(target: SocketAddr) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (limit_bytes, cuts) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicUsize::new(0)));
        let (limit, counted) = (limit_bytes.clone(), cuts.clone());
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (limit, counted) = (limit.clone(), counted.clone());
                tokio::spawn(async move {
                    let Ok(to) = TcpStream::connect(target).await else { return };
                    let ((mut asks, mut answers_to), (mut answers, mut asks_to)) =
                        (from.into_split(), to.into_split());
                    let back =
                        tokio::spawn(async move { tokio::io::copy(&mut answers, &mut answers_to).await });
                    let (mut sent, mut chunk) = (0, vec![0; 16 << 10]);
                    while let Ok(count @ 1..) = asks.read(&mut chunk).await {
                        sent += count as u64;
                        if sent > limit.load(Ordering::Relaxed) {
                            counted.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        if asks_to.write_all(&chunk[..count]).await.is_err() {
                            break;
                        }
                    }
                    back.abort();
                });
            }
        });
        Cutter { address, limit_bytes, cuts }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn q07_a_snapshot_that_is_cut_off_is_sent_again_and_never_half_installed() {
    let mut quorum = Quorum::new(3);
    quorum.snapshot_every_entries = 30;
    // The third is reached by the others over the cutter alone.
    let own = quorum.addresses[2];
    let cutter = Cutter::start(own).await;
    quorum.addresses[2] = cutter.address;
    for number in [0, 1] {
        quorum.start(number).await;
    }
    let voter = crate::quorum::Voter::start(quorum.config(2), own).await;
    quorum.voters[2] = Some(voter);
    let mut expected: Vec<String> = (0..4).map(|number| number.to_string().repeat(400_000)).collect();
    quorum.append_all(expected.clone()).await;
    // It sees them again from its own log.
    let known = expected.len();
    let late_end = quorum.voter(2).log.status().log_end_index;
    quorum.stop(2).await;
    for round in 0..2 {
        let more = payloads(&format!("{round} "), 60);
        quorum.append_all(more.clone()).await;
        expected.extend(more);
    }
    for number in [0, 1] {
        let log = &quorum.voter(number).log;
        log.snapshot_now().await.unwrap();
        eventually("the log to begin behind the late one's end", || {
            (log.status().log_start_index > late_end).then_some(())
        })
        .await;
    }
    // The snapshot is 1.6 MB: it is cut off each time, later and later.
    cutter.limit_bytes.store(100_000, Ordering::Relaxed);
    quorum.voters[2] = Some(crate::quorum::Voter::start(quorum.config(2), own).await);
    let mut cuts = 0;
    for limit_bytes in [500_000, 900_000, 1_300_000] {
        eventually("a transfer that is cut off", || {
            (cutter.cuts.load(Ordering::Relaxed) > cuts).then_some(())
        })
        .await;
        assert!(quorum.voter(2).recorder.seen().len() <= known, "half a snapshot was installed");
        cuts = cutter.cuts.load(Ordering::Relaxed);
        cutter.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        // A newer one takes the place of the one that is being sent.
        let more = payloads(&format!("{limit_bytes} "), 5);
        quorum.append_all(more.clone()).await;
        expected.extend(more);
        let (leader, _) = quorum.leader().await;
        quorum.voter(leader).log.snapshot_now().await.unwrap();
    }
    // Another leader begins anew.
    let (leader, _) = quorum.leader().await;
    quorum.voter(leader).log.transfer_leader((1 - leader) as u64 + 1).await.unwrap();
    assert!(quorum.voter(2).recorder.seen().len() <= known, "half a snapshot was installed");
    cutter.limit_bytes.store(u64::MAX, Ordering::Relaxed);
    quorum.all_saw(&expected).await;
    assert!(*quorum.voter(2).recorder.loads.lock().unwrap() > 0);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q08_a_leader_that_dies_during_a_change_leaves_one_membership() {
    let mut quorum = Quorum::new(4);
    quorum.listed = 3;
    quorum.start_all().await;
    quorum.append_all(payloads("a", 3)).await;
    let mut expected = payloads("a", 3);
    let mut is_voter = false;
    for (round, delay_us) in [0, 300, 1_000, 3_000, 10_000].into_iter().enumerate() {
        let (leader, _) = eventually("a leader that is not to come or go", || {
            let mut leads = quorum.voters.iter().flatten().map(|voter| *voter.log.leadership().borrow());
            leads.position(|leadership| leadership.ready).map(|number| (number, ()))
        })
        .await;
        if leader == 3 {
            drop(quorum.voter(3).log.transfer_leader(1).await);
            continue;
        }
        let (log, fourth) = (quorum.voter(leader).log.clone(), quorum.id(3));
        // It must know the fourth, as an observer or a voter.
        eventually("the fourth to be known", || {
            let status = log.status();
            status.voters.iter().chain(&status.observers).any(|replica| replica.voter == fourth).then_some(())
        })
        .await;
        let change = tokio::spawn(async move {
            match is_voter {
                true => log.remove_voter(fourth, PATIENCE).await,
                false => log.add_voter(fourth, PATIENCE).await,
            }
        });
        tokio::time::sleep(Duration::from_micros(delay_us)).await;
        quorum.stop(leader).await;
        let outcome = change.await.unwrap();
        let more = payloads(&format!("{round} "), 3);
        quorum.append_all(more.clone()).await;
        expected.extend(more);
        quorum.start(leader).await;
        quorum.all_saw(&expected).await;
        // Done or not done, and the same for everybody; never half.
        let voters = eventually("one membership", || {
            let all: Vec<Vec<u64>> = quorum
                .running()
                .map(|voter| {
                    let mut ids: Vec<u64> =
                        voter.log.status().voters.iter().map(|voter| voter.voter.node_id).collect();
                    ids.sort_unstable();
                    ids
                })
                .collect();
            let first = all.first()?.clone();
            all.iter().all(|ids| *ids == first).then_some(first)
        })
        .await;
        assert!(voters == [1, 2, 3] || voters == [1, 2, 3, 4], "{voters:?}");
        if outcome.is_ok() {
            assert_eq!(voters.len() == 4, !is_voter, "what was answered is true");
        }
        is_voter = voters.len() == 4;
    }
    // On a busy machine the leader may be another one by the time that it is asked.
    let deadline = std::time::Instant::now() + PATIENCE * 3;
    loop {
        match quorum.add(3).await {
            Ok(()) | Err(MembershipError::AlreadyAVoter(_)) => break,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(quorum.voter_ids().await, [1, 2, 3, 4]);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn q09_calls_that_no_voter_makes_change_nothing() {
    let quorum = Quorum::started(3).await;
    quorum.append_all(payloads("a", 3)).await;
    let (leader, term) = quorum.leader().await;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut number = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    // A vote of term 2^64 - 1 that is whole: term, node id, directory id, not committed, no log.
    let largest = [&[0xff; 9][..], &[0x01, 1, 9, 16], Uuid::from_u128(9).as_bytes(), &[0, 0, 0]].concat();
    for target in 0..3 {
        let mut client = RaftClient::connect(format!("http://{}", quorum.addresses[target])).await.unwrap();
        let voter = |node_id: u64, id: Uuid| {
            Some(wire::Voter { node_id, directory_id: Bytes::copy_from_slice(id.as_bytes()) })
        };
        let header = |sender: Option<wire::Voter>, recovery| {
            let target = voter(target as u64 + 1, quorum.ids[target]);
            Some(wire::Header { cluster_id: CLUSTER.into(), sender, target, recovery })
        };
        let stranger = || voter(9, Uuid::from_u128(9));
        // Of a recovery that nobody has made: a stranger is not believed.
        let whole = [&[7, 1, 9, 16][..], Uuid::from_u128(9).as_bytes(), &[0, 0, 0]].concat();
        for (recovery, body, code) in [
            (u64::MAX, Vec::new(), Code::InvalidArgument),
            (u64::MAX, whole.clone(), Code::PermissionDenied),
            (6, whole, Code::PermissionDenied),
        ] {
            let call = wire::Call { header: header(stranger(), recovery), body: body.into() };
            assert_eq!(client.vote(call).await.unwrap_err().code(), code, "{recovery}");
        }
        let call = wire::Call { header: header(stranger(), 0), body: largest.clone().into() };
        for outcome in [client.vote(call.clone()).await, client.pre_vote(call.clone()).await] {
            let error = outcome.unwrap_err();
            assert!(error.message().contains("speaks for term"), "{error}");
        }
        for round in 0..100 {
            let mut body: Vec<u8> = (0..number() % 60).map(|_| number() as u8).collect();
            if round % 3 == 0 {
                // The largest numbers where terms and indices stand.
                body = [[0xff; 9].as_slice(), &[0x01], &body].concat();
            }
            let call = wire::Call { header: header(stranger(), 0), body: Bytes::from(body) };
            let stream = futures::stream::iter([call.clone()]);
            let chunk = wire::SnapshotChunk {
                header: call.header.clone(),
                body: call.body.clone(),
                data: Bytes::from_static(b"data"),
            };
            let outcomes = [
                client.vote(call.clone()).await.err(),
                client.pre_vote(call.clone()).await.err(),
                client.transfer_leader(call).await.err(),
                client.stream_append(stream).await.err(),
                client.install_snapshot(futures::stream::iter([chunk])).await.err(),
            ];
            for error in outcomes {
                let code = error.expect("refused").code();
                assert!(matches!(code, Code::InvalidArgument | Code::PermissionDenied), "{code:?}");
            }
        }
    }
    quorum.append_all(payloads("b", 3)).await;
    assert_eq!(quorum.leader().await, (leader, term), "the quorum was disturbed");
    quorum.all_saw(&[payloads("a", 3), payloads("b", 3)].concat()).await;
}
