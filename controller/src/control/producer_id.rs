//! Producer ids (decision 6): each cluster has a range of its own, so that ids which a mirror copies
//! never meet ids handed out here. Bit 63 zero, 23 bits from the cluster id, a 40-bit counter.

use common::ids::ProducerId;
use common::metadata::{MetadataImage, MetadataRecord};
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::partition::{Sender, check_broker_epoch};
use super::result::{ControllerResult, refuse};
use super::settings::ControlSettings;

pub const BLOCK_SIZE: i64 = 1000;
const COUNTER_BITS: u32 = 40;
const PREFIX_BITS: u32 = 23;

/// The cluster's part of its producer ids, never zero: that is where plain Kafka starts.
pub fn prefix(cluster_id: &str) -> i64 {
    // FNV-1a, spread by a final mix: stable for ever, since ids stay in logs.
    let mut hash = cluster_id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    let bits = (hash & ((1 << PREFIX_BITS) - 1)) as i64;
    if bits == 0 { 1 } else { bits }
}

/// A block of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdBlock {
    pub first: ProducerId,
    pub count: i32,
}

/// AllocateProducerIds.
pub fn allocate(
    image: &MetadataImage,
    settings: &ControlSettings,
    sender: Sender,
) -> Result<ControllerResult<ProducerIdBlock>, ControlError> {
    check_broker_epoch(image, sender)?;
    let first = match image.next_producer_id {
        Some(next) => next.0,
        None => prefix(&settings.cluster_id) << COUNTER_BITS,
    };
    let end = ((first >> COUNTER_BITS) + 1) << COUNTER_BITS;
    if end - first <= BLOCK_SIZE {
        return refuse(ErrorCode::UnknownServerError, "the producer ids of this cluster are used up");
    }
    let record = MetadataRecord::ProducerIds {
        broker_id: sender.broker_id,
        broker_epoch: sender.broker_epoch,
        next_producer_id: ProducerId(first + BLOCK_SIZE),
    };
    let block = ProducerIdBlock { first: ProducerId(first), count: BLOCK_SIZE as i32 };
    Ok(ControllerResult::new(vec![record], block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;
    use common::ids::{BrokerEpoch, BrokerId};

    #[test]
    fn blocks_follow_each_other_in_the_clusters_own_range() {
        let mut image = with_brokers(&[1]);
        let sender = Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1) };
        let one = allocate(&image, &settings(), sender).unwrap();
        assert_eq!(one.response.first.0 >> COUNTER_BITS, prefix("here"));
        assert!(one.response.first.0 > 0);
        replay(&mut image, one.records);
        let two = allocate(&image, &settings(), sender).unwrap();
        assert_eq!(two.response.first.0, one.response.first.0 + BLOCK_SIZE);
        let stale = Sender { broker_epoch: BrokerEpoch(0), ..sender };
        assert_eq!(allocate(&image, &settings(), stale).unwrap_err().code, ErrorCode::StaleBrokerEpoch);
    }

    #[test]
    fn the_range_ends_instead_of_running_into_the_next() {
        let mut image = with_brokers(&[1]);
        let sender = Sender { broker_id: BrokerId(1), broker_epoch: BrokerEpoch(1) };
        let end = (prefix("here") + 1) << COUNTER_BITS;
        image.next_producer_id = Some(ProducerId(end - BLOCK_SIZE));
        assert!(allocate(&image, &settings(), sender).is_err());
    }

    #[test]
    fn prefixes_are_pinned() {
        // Changing the derivation would hand ids out twice.
        for cluster in ["", "a", "here", "4L6g3nShT-eMCtK--X86sw"] {
            let bits = prefix(cluster);
            assert!(bits > 0 && bits < 1 << PREFIX_BITS, "{cluster}");
        }
        assert_ne!(prefix("a"), prefix("b"));
    }
}
