//! ListMirrors.

use std::collections::HashMap;
use std::sync::Arc;

use common::metadata::record::ConfigResourceType;
use protocol::error_code::ErrorCode;
use protocol::mirror::ListMirrorsResponse;
use protocol::mirror::list_mirrors::ListedMirror;

use super::text;
use crate::api::ApiContext;
use crate::control::mirror::create::BOOTSTRAP_SERVERS_CONFIG;

pub fn handle(context: &ApiContext) -> ListMirrorsResponse {
    let mut response = ListMirrorsResponse::default();
    if !context.controller.is_active() {
        let code = ErrorCode::NotController;
        response.error_code = code.code();
        response.error_message = Some(text(code.message()));
        return response;
    }
    let image = context.image();
    let mut topics: HashMap<&Arc<str>, i32> = HashMap::new();
    for topic in image.topics.by_id.values() {
        if let Some(mirror) = &topic.mirror {
            *topics.entry(&mirror.mirror).or_default() += 1;
        }
    }
    for mirror in image.pending_mirror_topics.values() {
        *topics.entry(mirror).or_default() += 1;
    }
    response.mirrors = image
        .mirrors
        .values()
        .map(|mirror| ListedMirror {
            mirror_name: text(mirror.name.to_string()),
            source_bootstrap: text(
                image
                    .config(ConfigResourceType::Mirror, &mirror.name)
                    .and_then(|map| map.get(BOOTSTRAP_SERVERS_CONFIG).cloned())
                    .unwrap_or_default(),
            ),
            topic_count: topics.get(&mirror.name).copied().unwrap_or(0),
            source_cluster_id: mirror.source_cluster_id.clone().map(text),
        })
        .collect();
    response
}
