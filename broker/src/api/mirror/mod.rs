//! The mirror APIs that a broker answers itself. CreateMirror, AddTopicsToMirror, RemoveTopicsFromMirror
//! and LastMirroredOffsets go to the active controller.

mod describe_mirrors;
mod list_mirrors;
mod list_source_topics;
mod read_mirror_states;
mod verify_mirror;
mod write_mirror_states;

use std::sync::Arc;

use common::metadata::MetadataImage;
use common::metadata::record::{ConfigResource, ConfigResourceType};
use protocol::{ErrorCode, Request, Response, StrBytes};

use crate::mirror::Mirroring;
use crate::mirror::state::{FailureKind, SourceFailure};

/// `None`: not one of these.
pub async fn handle(mirroring: &Arc<Mirroring>, request: Request) -> Option<Response> {
    Some(match request {
        Request::ListMirrors(_) => list_mirrors::handle(&mirroring.cache.image()).into(),
        Request::DescribeMirrors(request) => describe_mirrors::handle(mirroring, &request).await.into(),
        Request::ReadMirrorStates(request) => read_mirror_states::handle(mirroring, request).await.into(),
        Request::WriteMirrorStates(request) => write_mirror_states::handle(mirroring, request).await.into(),
        Request::ListSourceTopics(request) => list_source_topics::handle(mirroring, request).await.into(),
        Request::VerifyMirror(request) => verify_mirror::handle(mirroring, request).await.into(),
        _ => return None,
    })
}

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

fn bootstrap_of(image: &MetadataImage, mirror: &str) -> Option<String> {
    let resource = ConfigResource { resource_type: ConfigResourceType::Mirror, name: mirror.into() };
    image.configs.get(&resource)?.get("bootstrap.servers").cloned()
}

/// The code for what went wrong with a source; the message says the rest.
fn source_code(failure: &SourceFailure) -> ErrorCode {
    match failure {
        SourceFailure::CouldNotAsk(_) => ErrorCode::NetworkException,
        SourceFailure::Failed(reason) => match reason.kind {
            FailureKind::OwnCluster | FailureKind::OtherSourceCluster => ErrorCode::InconsistentClusterId,
            FailureKind::TopicIdMismatch => ErrorCode::InconsistentTopicId,
            _ => ErrorCode::InvalidRequest,
        },
    }
}
