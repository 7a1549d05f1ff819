use common::ids::{MetadataOffset, Term};
use common::metadata::{MetadataDelta, MetadataImage, codec, snapshot};
use protocol::proto::metadata::{SubscribeRequest, SubscribeResponse};
use tonic::{Code, Streaming};

use crate::harness::{CLUSTER_ID, Harness, start};

fn request(offset: MetadataOffset, term: Term) -> SubscribeRequest {
    SubscribeRequest { cluster_id: CLUSTER_ID.to_owned(), broker_id: 5, offset: offset.0, term: term.0 }
}

/// Replays a stream until the image is at the server's offset.
async fn follow(harness: &Harness, stream: &mut Streaming<SubscribeResponse>, image: &mut MetadataImage) {
    let mut partial = Vec::new();
    while image.offset < harness.server.image().offset {
        let message = stream.message().await.unwrap().expect("the stream goes on");
        partial.extend_from_slice(&message.snapshot);
        if message.snapshot_last {
            *image = snapshot::read(&std::mem::take(&mut partial)).unwrap();
        }
        for bytes in message.batches {
            for batch in codec::decode_batches(&bytes).unwrap() {
                image.apply(&batch, &mut MetadataDelta::default()).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_broker_follows_from_where_it_stands() {
    let harness = start(&[]).await;
    let mut client = harness.metadata().await;
    let mut image = MetadataImage::default();
    let mut stream = client.subscribe(request(image.offset, image.term)).await.unwrap().into_inner();
    let _broker = harness.active_broker(5).await;
    follow(&harness, &mut stream, &mut image).await;
    assert_eq!(image.digest(), harness.server.image().digest());
    drop(stream);
    let _other = harness.active_broker(6).await;
    let mut stream = client.subscribe(request(image.offset, image.term)).await.unwrap().into_inner();
    follow(&harness, &mut stream, &mut image).await;
    assert_eq!(image.digest(), harness.server.image().digest());
    assert_eq!(image.brokers.len(), 2);
    drop(stream);
    harness.server.shutdown().await;
}

#[tokio::test]
async fn a_broker_ahead_of_the_quorum_or_of_another_history_is_refused() {
    let harness = start(&[]).await;
    let mut client = harness.metadata().await;
    let image = harness.server.image();
    let ahead = client.subscribe(request(MetadataOffset(image.offset.0 + 10), image.term)).await;
    assert_eq!(ahead.unwrap_err().code(), Code::OutOfRange);
    let diverged = client.subscribe(request(image.offset, Term(image.term.0 + 7))).await;
    assert_eq!(diverged.unwrap_err().code(), Code::OutOfRange);
    harness.server.shutdown().await;
}
