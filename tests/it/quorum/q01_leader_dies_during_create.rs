//! Q1: the active controller dies during CreateTopics: before it appends, before a majority has it, before it
//! answers. None of the request's records are there or all, and asking again does nothing twice.
//! (The same for AddTopicsToMirror, RemoveTopicsFromMirror and CreateMirror: the simulation loses the
//! leadership of the log with entries in flight, whatever they hold.)

use anyhow::{Result, ensure};
use kagami_tests::cluster::ClusterSpec;
use protocol::ErrorCode;
use tokio::time::{Instant, sleep, timeout};

use super::controllers::{codes, create};
use crate::support::{LIMIT, Side};

const TOPICS: [&str; 2] = ["orders", "payments"];

/// What the leader dies before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Append,
    Commit,
    Answer,
}

async fn dies(moment: Moment) -> Result<()> {
    let mut side = Side::start(ClusterSpec::new(3, 1)).await?;
    let leader = side.active_controller().await?;
    let others = side.controllers_but(leader);
    let place = match moment {
        Moment::Append => "controller.operation@CreateTopics",
        Moment::Commit => "controller.appended",
        Moment::Answer => "controller.answer",
    };
    if moment == Moment::Commit {
        // They take nothing; what is on its way to them they may find later.
        for other in &others {
            side.cluster.pause(*other)?;
        }
    }
    side.faults(leader).crash(place)?;
    let address = side.cluster.controller_address(leader);
    let answer = timeout(LIMIT, side.client.call_at(&address, create(&TOPICS), 7)).await?;
    ensure!(answer.is_err(), "answered by a process that is dead: {answer:?}");
    side.faults(leader).crashed(place).await?;
    side.cluster.await_exit(leader).await?;
    for other in others.iter().filter(|_| moment == Moment::Commit) {
        side.cluster.resume(*other)?;
    }
    let next = side.active_of(&others).await?;
    let address = side.cluster.controller_address(next);
    let deadline = Instant::now() + LIMIT;
    let codes = loop {
        let answer = side.client.call_at(&address, create(&TOPICS), 7).await.and_then(codes);
        match answer {
            Ok(codes)
                if !codes.iter().any(|code| ErrorCode::from_code(*code).is_some_and(|e| e.retriable())) =>
            {
                break codes;
            }
            // A new leader may not be active yet, and may not know of a broker.
            other => ensure!(Instant::now() < deadline, "{other:?}"),
        }
        sleep(std::time::Duration::from_millis(25)).await;
    };
    let (done, there) = (ErrorCode::None.code(), ErrorCode::TopicAlreadyExists.code());
    let expected = match moment {
        Moment::Append => vec![done],
        Moment::Commit => vec![done, there],
        Moment::Answer => vec![there],
    };
    ensure!(codes[0] == codes[1] && expected.contains(&codes[0]), "{codes:?}, not {expected:?} for both");
    side.restart(leader)?;
    side.check_topics(&TOPICS).await
}

#[tokio::test]
async fn q01_before_it_appends() -> Result<()> {
    dies(Moment::Append).await
}

#[tokio::test]
async fn q01_before_a_majority_has_it() -> Result<()> {
    dies(Moment::Commit).await
}

#[tokio::test]
async fn q01_before_it_answers() -> Result<()> {
    dies(Moment::Answer).await
}
