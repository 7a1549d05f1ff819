//! ListMirrors: the mirrors of this cluster, from the image.

use std::collections::HashMap;

use common::metadata::MetadataImage;
use protocol::mirror::ListMirrorsResponse;
use protocol::mirror::list_mirrors::ListedMirror;

use super::{bootstrap_of, text};

pub fn handle(image: &MetadataImage) -> ListMirrorsResponse {
    let mut counts: HashMap<&str, i32> = HashMap::new();
    for topic in image.topics.by_id.values() {
        if let Some(mirror) = &topic.mirror {
            *counts.entry(&mirror.mirror).or_default() += 1;
        }
    }
    for mirror in image.pending_mirror_topics.values() {
        *counts.entry(mirror).or_default() += 1;
    }
    let mirrors = image
        .mirrors
        .values()
        .map(|mirror| ListedMirror {
            mirror_name: text(&*mirror.name),
            source_bootstrap: text(bootstrap_of(image, &mirror.name).unwrap_or_default()),
            topic_count: counts.get(&*mirror.name).copied().unwrap_or(0),
            source_cluster_id: mirror.source_cluster_id.clone().map(text),
        })
        .collect();
    ListMirrorsResponse { mirrors, ..Default::default() }
}
