//! ListConfigResources: the names of what has a configuration. Version 0 was ListClientMetricsResources
//! and lists only those; there are none here.

use common::metadata::MetadataImage;
use common::metadata::record::ConfigResourceType;
use protocol::StrBytes;
use protocol::error_code::ErrorCode;
use protocol::messages::list_config_resources_response::ConfigResource;
use protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};

const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

pub fn handle(
    image: &MetadataImage,
    request: &ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    let topic = ConfigResourceType::Topic.code();
    let broker = ConfigResourceType::Broker.code();
    let mirror = ConfigResourceType::Mirror.code();
    let all = [topic, broker, BROKER_LOGGER, CLIENT_METRICS, GROUP, mirror];
    let mut response = ListConfigResourcesResponse::default();
    let asked: &[i8] = match (version, request.resource_types.as_slice()) {
        (0, _) => &[CLIENT_METRICS],
        (_, []) => &all,
        (_, types) => types,
    };
    if asked.iter().any(|asked| !all.contains(asked)) {
        response.error_code = ErrorCode::UnsupportedVersion.code();
        return response;
    }
    for resource_type in all.into_iter().filter(|one| asked.contains(one)) {
        let names: Vec<String> = if resource_type == topic {
            image.topics.by_name.keys().map(|name| name.to_string()).collect()
        } else if resource_type == broker || resource_type == BROKER_LOGGER {
            let alive = image.brokers.iter().filter(|(_, broker)| !broker.fenced);
            alive.map(|(id, _)| id.to_string()).collect()
        } else if resource_type == mirror {
            image.mirrors.keys().map(|name| name.to_string()).collect()
        } else {
            Vec::new()
        };
        response.config_resources.extend(names.into_iter().map(|name| {
            let mut resource = ConfigResource::default();
            resource.resource_name = StrBytes::from_string(name);
            resource.resource_type = resource_type;
            resource
        }));
    }
    response
}
