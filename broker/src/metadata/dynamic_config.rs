//! The broker's configuration as it is now: the file under the values that the metadata log sets.

use std::sync::Arc;

use arc_swap::ArcSwap;
use common::config::BrokerConfig;
use common::ids::BrokerId;
use common::metadata::record::{ConfigResource, ConfigResourceType};
use common::metadata::{MetadataDelta, MetadataImage};
use tracing::{info, warn};

use super::publisher::MetadataSubscriber;

pub struct DynamicBrokerConfig {
    broker_id: BrokerId,
    file: Arc<BrokerConfig>,
    current: ArcSwap<BrokerConfig>,
}

impl DynamicBrokerConfig {
    pub fn new(file: Arc<BrokerConfig>) -> DynamicBrokerConfig {
        DynamicBrokerConfig { broker_id: file.node_id, current: ArcSwap::new(file.clone()), file }
    }

    pub fn current(&self) -> Arc<BrokerConfig> {
        self.current.load_full()
    }

    fn resource(name: String) -> ConfigResource {
        ConfigResource { resource_type: ConfigResourceType::Broker, name: name.into() }
    }
}

impl MetadataSubscriber for DynamicBrokerConfig {
    fn apply_metadata(&self, _: &MetadataImage, delta: &MetadataDelta, after: &Arc<MetadataImage>) {
        let own = Self::resource(self.broker_id.to_string());
        let everybodys = Self::resource(String::new());
        if !delta.everything && !delta.configs.contains(&own) && !delta.configs.contains(&everybodys) {
            return;
        }
        let level = |resource: &ConfigResource| after.configs.get(resource).map(|configs| &**configs);
        match self.file.with_dynamic(level(&own), level(&everybodys)) {
            Ok(config) if config == **self.current.load() => {}
            Ok(config) => {
                info!("dynamic configuration applied");
                self.current.store(Arc::new(config));
            }
            // Each value was checked when it was set; together with this broker's file they may not fit.
            Err(error) => warn!(%error, "dynamic configuration does not fit, the former one stays"),
        }
    }
}
