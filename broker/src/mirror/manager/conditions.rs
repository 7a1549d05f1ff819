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

#[cfg(test)]
mod tests {
    use common::metadata::record::BrokerRegistration;

    use super::*;

    fn image(broker_epoch: i64, fenced: bool) -> MetadataImage {
        let mut image = MetadataImage::default();
        let registration = BrokerRegistration {
            broker_epoch: BrokerEpoch(broker_epoch),
            incarnation_id: IncarnationId(uuid::Uuid::nil()),
            endpoints: Vec::new(),
            inter_broker_endpoint: 0,
            rack: None,
            directories: Vec::new(),
            fenced,
            in_controlled_shutdown: false,
        };
        image.brokers.insert(BrokerId(1), registration.into());
        image
    }

    #[test]
    fn a_fenced_broker_or_an_image_from_before_its_registration_acts_on_nothing() {
        let acts =
            |image: &MetadataImage, own: Option<i64>| may_act(image, BrokerId(1), own.map(BrokerEpoch));
        assert!(acts(&image(7, false), Some(7)));
        assert!(!acts(&image(7, true), Some(7)));
        assert!(!acts(&image(7, false), Some(9)), "an image of an earlier process");
        assert!(!acts(&image(7, false), None), "not registered");
        assert!(!acts(&MetadataImage::default(), Some(7)));
        assert!(!acts(&MetadataImage::default(), None));
    }

    fn status(high_watermark: i64) -> LocalStatus {
        LocalStatus {
            is_leader: true,
            leader_epoch: LeaderEpoch(5),
            log_start_offset: Offset(0),
            log_end_offset: Offset(10),
            high_watermark: Offset(high_watermark),
            latest_batch_epoch: LeaderEpoch(4),
        }
    }

    #[test]
    fn a_stop_waits_for_the_high_watermark_and_a_release_for_every_member_too() {
        let not_leading = LocalStatus { is_leader: false, ..status(10) };
        assert!(high_watermark_at_end(&status(10)));
        assert!(!high_watermark_at_end(&status(9)));
        assert!(!high_watermark_at_end(&not_leading));
        let aligned = |status: &LocalStatus, epoch, fetched, at_end| {
            replicas_aligned(status, LeaderEpoch(epoch), fetched, at_end)
        };
        assert!(aligned(&status(10), 5, true, true));
        assert!(aligned(&status(9), 5, true, false), "PREPARING needs no high watermark");
        assert!(!aligned(&status(9), 5, true, true));
        assert!(!aligned(&status(10), 6, true, true), "not yet under the cut's epoch");
        assert!(!aligned(&status(10), 5, false, true));
        assert!(!aligned(&not_leading, 5, true, true));
    }
}
