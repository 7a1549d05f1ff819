//! PURE. When what a machine waits for at its own partition has come.

use common::ids::*;
use common::metadata::MetadataImage;

use crate::mirror::deps::LocalStatus;

/// Effects run only unfenced and from an image at or past the broker's own registration (decision 16): an
/// older image may show a leadership that has ended long ago.
pub fn may_act(image: &MetadataImage, broker: BrokerId, own_epoch: Option<BrokerEpoch>) -> bool {
    let registered = image.brokers.get(&broker);
    registered.is_some_and(|broker| !broker.fenced && Some(broker.broker_epoch) == own_epoch)
}

/// The first half of decision 10b.
pub fn high_watermark_at_end(status: &LocalStatus) -> bool {
    status.is_leader && status.high_watermark >= status.log_end_offset
}

/// Decision 10e. `fetched_under_epoch`: the ISR is large enough and each member has fetched under the epoch.
pub fn replicas_aligned(
    status: &LocalStatus,
    epoch: LeaderEpoch,
    fetched_under_epoch: bool,
    wants_high_watermark_at_end: bool,
) -> bool {
    status.is_leader
        && status.leader_epoch >= epoch
        && fetched_under_epoch
        && (!wants_high_watermark_at_end || status.high_watermark >= status.log_end_offset)
}
