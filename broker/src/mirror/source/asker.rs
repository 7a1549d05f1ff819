//! Asks the source what partitions need to know before they cut or fetch: questions that wait together
//! travel together, so that a thousand partitions cost a handful of requests.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use common::ids::*;
use futures::future::join_all;
use protocol::api::ApiKey;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::mirror::state::{
    EpochEnd, LastMirrored, MirrorEvent, SourceBounds, SourceCheck, SourceFailure, SourceLeader,
    SourcePosition, Token,
};

use super::client::SourceClient;
use super::lineage::{self, At};
use super::position::{self, Asked, Recorded};

/// Questions in one round.
const ROUND_QUESTIONS: usize = 2_000;
/// Rounds under way at once: a hung broker of the source holds up its own partitions only.
const ROUNDS: usize = 4;

#[derive(Clone, Debug)]
pub struct Question {
    pub id: TopicIdPartition,
    pub topic: Arc<str>,
    pub token: Token,
    /// The newest of the source's cut ids seen so far.
    pub seen: Option<CutId>,
    pub kind: QuestionKind,
}

#[derive(Clone, Debug)]
pub enum QuestionKind {
    /// Before the PREPARING cut.
    Position { recopy: bool },
    /// Before a fetch. `last_epoch` is that of our last batch.
    Check { bounds: bool, local_end: Offset, last_epoch: Option<LeaderEpoch> },
}

#[derive(Clone, Debug)]
pub enum Answer {
    Event(TopicIdPartition, MirrorEvent),
    /// The source's cluster id, not recorded yet. Nothing else is asked before it is.
    FirstContact(String),
}

pub type Answers = Arc<dyn Fn(Answer) + Send + Sync>;

/// The queue of one mirror. Dropped with its last handle.
#[derive(Clone)]
pub struct Asker {
    questions: mpsc::UnboundedSender<Question>,
}

impl Asker {
    /// The queue is bounded by its users: each partition has at most one question under way.
    pub fn start(
        runtime: &Handle,
        client: Arc<SourceClient>,
        answers: Answers,
        stop: CancellationToken,
    ) -> Asker {
        let (questions, mut queue) = mpsc::unbounded_channel();
        let own = runtime.clone();
        runtime.spawn(async move {
            let rounds = Arc::new(Semaphore::new(ROUNDS));
            let mut waiting = Vec::new();
            loop {
                let permit = rounds.clone().acquire_owned().await;
                tokio::select! {
                    () = stop.cancelled() => return,
                    count = queue.recv_many(&mut waiting, ROUND_QUESTIONS) => if count == 0 { return },
                }
                let (client, answers, round) =
                    (client.clone(), answers.clone(), std::mem::take(&mut waiting));
                let stop = stop.clone();
                own.spawn(async move {
                    let _permit = permit;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = ask_round(&client, round, &answers) => {}
                    }
                });
            }
        });
        Asker { questions }
    }

    pub fn ask(&self, question: Question) {
        // A closed queue belongs to a mirror that is gone; so is whoever asked.
        let _ = self.questions.send(question);
    }
}

/// One question with what was learned for it so far.
struct Pending {
    question: Question,
    leader: SourceLeader,
    recorded: Option<Recorded>,
}

async fn ask_round(client: &SourceClient, questions: Vec<Question>, answers: &Answers) {
    if client.identity().source_cluster_id.is_none() {
        if let Some(reason) = client.take_refusal() {
            let why = SourceFailure::Failed(reason);
            return questions.into_iter().for_each(|question| fail(answers, &question, why.clone()));
        }
        let why = match client.metadata(Some(&[])).await {
            Ok(found) => {
                if let Some(cluster_id) = found.cluster_id {
                    answers(Answer::FirstContact(cluster_id));
                }
                SourceFailure::CouldNotAsk("its cluster id is being recorded".to_owned())
            }
            Err(failure) => failure,
        };
        return questions.into_iter().for_each(|question| fail(answers, &question, why.clone()));
    }
    let topics: BTreeSet<Arc<str>> = questions.iter().map(|question| question.topic.clone()).collect();
    let topics: Vec<Arc<str>> = topics.into_iter().collect();
    let metadata = match client.metadata(Some(&topics)).await {
        Ok(metadata) => metadata,
        Err(why) => return questions.into_iter().for_each(|question| fail(answers, &question, why.clone())),
    };
    let mut pending = Vec::new();
    for question in questions {
        match metadata.leader_of(&question.topic, question.id) {
            Ok(leader) => pending.push(Pending { question, leader, recorded: None }),
            Err(why) => fail(answers, &question, why),
        }
    }
    // The epoch is known; now the cuts, and only then anything is fetched under that epoch (decision 20).
    let pending = match client.serves(ApiKey::LastMirroredOffsets).await {
        Ok(false) => pending,
        Ok(true) => with_positions(client, pending, answers).await,
        Err(why) => {
            return pending.into_iter().for_each(|pending| fail(answers, &pending.question, why.clone()));
        }
    };
    let mut by_leader: HashMap<String, Vec<Pending>> = HashMap::new();
    for pending in pending {
        let address = format!("{}:{}", pending.leader.host, pending.leader.port);
        by_leader.entry(address).or_default().push(pending);
    }
    join_all(by_leader.into_iter().map(|(address, pending)| ask_leader(client, address, pending, answers)))
        .await;
}

async fn with_positions(client: &SourceClient, pending: Vec<Pending>, answers: &Answers) -> Vec<Pending> {
    let asked: Vec<Asked> = pending.iter().map(|pending| asked(&pending.question)).collect();
    let recorded = position::ask(client, &asked).await;
    let mut known = Vec::with_capacity(pending.len());
    for (mut pending, recorded) in pending.into_iter().zip(recorded) {
        match recorded.and_then(|recorded| recorded.fits(pending.leader.epoch).map(|()| recorded)) {
            Ok(recorded) => {
                pending.recorded = Some(recorded);
                known.push(pending);
            }
            Err(why) => fail(answers, &pending.question, why),
        }
    }
    known
}

fn asked(question: &Question) -> Asked {
    Asked { topic: question.topic.clone(), id: question.id, seen: question.seen }
}

fn at(pending: &Pending) -> At {
    At {
        topic: pending.question.topic.clone(),
        partition: pending.question.id.partition,
        epoch: pending.leader.epoch,
    }
}

async fn ask_leader(client: &SourceClient, address: String, pending: Vec<Pending>, answers: &Answers) {
    let (positions, checks): (Vec<_>, Vec<_>) = pending
        .into_iter()
        .partition(|pending| matches!(pending.question.kind, QuestionKind::Position { .. }));
    if !positions.is_empty() {
        let places: Vec<At> = positions.iter().map(at).collect();
        let ends = lineage::log_ends(client, &address, &places).await;
        for (pending, end) in positions.into_iter().zip(ends) {
            let result = match end {
                Ok(end) => position_of(client, &address, &pending, end).await,
                Err(why) => Err(why),
            };
            let token = pending.question.token;
            answers(Answer::Event(pending.question.id, MirrorEvent::SourceAnswered { token, result }));
        }
    }
    if checks.is_empty() {
        return;
    }
    let bounds = checked_bounds(client, &address, &checks).await;
    let ends = checked_epochs(client, &address, &checks).await;
    for pending in checks {
        let id = pending.question.id;
        let result = check_of(&pending, bounds.get(&id), ends.get(&id));
        let token = pending.question.token;
        answers(Answer::Event(id, MirrorEvent::SourceChecked { token, result }));
    }
}

async fn position_of(
    client: &SourceClient,
    address: &str,
    pending: &Pending,
    log_end: Offset,
) -> Result<SourcePosition, SourceFailure> {
    let recorded = pending.recorded;
    let mut last_mirrored = recorded.map_or(LastMirrored::NotSupported, |recorded| recorded.last_mirrored);
    let recopy = matches!(pending.question.kind, QuestionKind::Position { recopy: true });
    if recopy && matches!(last_mirrored, LastMirrored::NotWritable { .. }) {
        let mirrors_other = position::mirrors_other(client, address, &asked(&pending.question)).await?;
        last_mirrored = LastMirrored::NotWritable { mirrors_other };
    }
    Ok(SourcePosition {
        log_end,
        last_mirrored,
        newest_cut: recorded.and_then(|recorded| recorded.cuts.newest),
        checked_own_cut: recorded.and_then(|recorded| recorded.checked_own_cut),
    })
}

type Found<T> = HashMap<TopicIdPartition, Result<T, SourceFailure>>;

async fn checked_bounds(client: &SourceClient, address: &str, checks: &[Pending]) -> Found<SourceBounds> {
    let wanted: Vec<&Pending> = checks
        .iter()
        .filter(|pending| matches!(pending.question.kind, QuestionKind::Check { bounds: true, .. }))
        .collect();
    if wanted.is_empty() {
        return Found::new();
    }
    let places: Vec<At> = wanted.iter().map(|pending| at(pending)).collect();
    let found = lineage::bounds(client, address, &places).await;
    wanted.into_iter().map(|pending| pending.question.id).zip(found).collect()
}

async fn checked_epochs(client: &SourceClient, address: &str, checks: &[Pending]) -> Found<Option<Offset>> {
    let wanted: Vec<(&Pending, LeaderEpoch)> = checks
        .iter()
        .filter_map(|pending| match pending.question.kind {
            QuestionKind::Check { last_epoch: Some(epoch), .. } => Some((pending, epoch)),
            _ => None,
        })
        .collect();
    if wanted.is_empty() {
        return Found::new();
    }
    let places: Vec<_> = wanted.iter().map(|(pending, epoch)| (at(pending), *epoch)).collect();
    let found = lineage::epoch_ends(client, address, &places).await;
    wanted.into_iter().map(|(pending, _)| pending.question.id).zip(found).collect()
}

fn check_of(
    pending: &Pending,
    bounds: Option<&Result<SourceBounds, SourceFailure>>,
    end: Option<&Result<Option<Offset>, SourceFailure>>,
) -> Result<SourceCheck, SourceFailure> {
    let QuestionKind::Check { local_end, .. } = pending.question.kind else {
        return Err(SourceFailure::CouldNotAsk("not a check".to_owned()));
    };
    Ok(SourceCheck {
        leader: pending.leader.clone(),
        cuts: pending.recorded.map(|recorded| recorded.cuts),
        local_end,
        end_of_last_epoch: match end.cloned().transpose()? {
            None => EpochEnd::NotAsked,
            Some(None) => EpochEnd::Unknown,
            Some(Some(end)) => EpochEnd::At(end),
        },
        bounds: bounds.cloned().transpose()?,
    })
}

fn fail(answers: &Answers, question: &Question, why: SourceFailure) {
    let token = question.token;
    let event = match question.kind {
        QuestionKind::Position { .. } => MirrorEvent::SourceAnswered { token, result: Err(why) },
        QuestionKind::Check { .. } => MirrorEvent::SourceChecked { token, result: Err(why) },
    };
    answers(Answer::Event(question.id, event));
}
