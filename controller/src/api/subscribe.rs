//! Subscribe: committed batches, pushed to a broker from where it stands; a snapshot first where the
//! batches in between are no longer kept. A slow broker parks its own task only.

use std::sync::Arc;

use bytes::Bytes;
use common::ids::{MetadataOffset, Term};
use common::metadata::snapshot;
use protocol::proto::metadata as wire;
use tokio::sync::mpsc;
use tonic::Status;

use super::ApiContext;
use crate::quorum::publisher::Next;

/// Messages that may wait for a broker.
const QUEUE: usize = 4;
const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;

pub type Messages = mpsc::Receiver<Result<wire::SubscribeResponse, Status>>;

pub async fn subscribe(
    context: Arc<ApiContext>,
    request: wire::SubscribeRequest,
) -> Result<Messages, Status> {
    context.check_cluster(&request.cluster_id)?;
    let position = (MetadataOffset(request.offset), Term(request.term));
    if matches!(context.listener.publisher().next(position.0, position.1), Next::Ahead | Next::Diverged) {
        return Err(refuse(&context, position).await);
    }
    let (sender, receiver) = mpsc::channel(QUEUE);
    let broker = request.broker_id;
    tokio::spawn(async move {
        tracing::debug!(broker, offset = position.0.0, "metadata subscription begins");
        let shutdown = context.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = push(context, position, sender) => {}
        }
        tracing::debug!(broker, "metadata subscription ends");
    });
    Ok(receiver)
}

/// A controller that lags may well be behind a broker; only one that the quorum confirms can say that
/// the broker holds what was never committed.
async fn refuse(context: &ApiContext, (offset, term): (MetadataOffset, Term)) -> Status {
    if context.raft.read_index().await.is_err() {
        return Status::unavailable("this controller is behind; ask another one");
    }
    match context.listener.publisher().next(offset, term) {
        Next::Ahead => Status::out_of_range(format!("offset {offset} is ahead of the quorum")),
        Next::Diverged => {
            Status::out_of_range(format!("the batch at offset {offset} is not of term {term} in the quorum"))
        }
        _ => Status::unavailable("this controller has caught up; subscribe again"),
    }
}

async fn push(
    context: Arc<ApiContext>,
    (mut offset, mut term): (MetadataOffset, Term),
    sender: mpsc::Sender<Result<wire::SubscribeResponse, Status>>,
) {
    let publisher = context.listener.publisher();
    let mut committed = publisher.position();
    loop {
        let last = *committed.borrow_and_update();
        match publisher.next(offset, term) {
            Next::Batches { batches, last: upto, last_term } => {
                let message =
                    wire::SubscribeResponse { batches, committed_offset: last.0.0, ..Default::default() };
                if sender.send(Ok(message)).await.is_err() {
                    return;
                }
                (offset, term) = (upto, last_term);
            }
            Next::UpToDate => {
                tokio::select! {
                    changed = committed.changed() => if changed.is_err() { return },
                    () = sender.closed() => return,
                }
            }
            Next::Behind => {
                let image = context.image();
                (offset, term) = (image.offset, image.term);
                // Of a large cluster this is work for some tens of milliseconds.
                let data = tokio::task::spawn_blocking(move || Bytes::from(snapshot::write(&image))).await;
                let Ok(data) = data else { return };
                if !send_snapshot(&sender, data, offset).await {
                    return;
                }
            }
            Next::Ahead | Next::Diverged => {
                // A snapshot from the quorum replaced what this subscriber followed.
                let _ = sender.send(Err(Status::unavailable("subscribe again"))).await;
                return;
            }
        }
    }
}

async fn send_snapshot(
    sender: &mpsc::Sender<Result<wire::SubscribeResponse, Status>>,
    mut data: Bytes,
    offset: MetadataOffset,
) -> bool {
    loop {
        let chunk = data.split_to(data.len().min(SNAPSHOT_CHUNK_BYTES));
        let message = wire::SubscribeResponse {
            snapshot: chunk,
            snapshot_last: data.is_empty(),
            committed_offset: offset.0,
            ..Default::default()
        };
        if sender.send(Ok(message)).await.is_err() {
            return false;
        }
        if data.is_empty() {
            return true;
        }
    }
}
