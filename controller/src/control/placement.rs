//! Which brokers hold a new topic's replicas: Kafka's rack-aware round robin.
//!
//! Brokers are laid out so that neighbours sit in different racks; partition p starts p places after a
//! random start, its followers sit at a shifting distance, so that the load of a lost broker spreads.

use std::collections::{BTreeMap, HashSet};

use common::ids::BrokerId;
use common::metadata::MetadataImage;
use protocol::error_code::ErrorCode;

use super::ControlError;
use super::result::refuse;

/// Random numbers, handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementSeed {
    pub start: u32,
    pub shift: u32,
}

/// What a topic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementSpec {
    /// The first partition to place; earlier ones exist.
    pub first_partition: i32,
    pub partitions: i32,
    pub replication_factor: i16,
    /// Only unfenced brokers that are not shutting down (mirror topics, KAFKA-16234); else fenced ones
    /// fill up, as in Kafka.
    pub only_active: bool,
}

/// Replicas for each partition.
pub fn place(
    image: &MetadataImage,
    spec: PlacementSpec,
    seed: PlacementSeed,
) -> Result<Vec<Vec<BrokerId>>, ControlError> {
    let replication_factor = usize::try_from(spec.replication_factor).unwrap_or(0);
    if replication_factor == 0 {
        return refuse(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        );
    }
    let active = striped(image, |active| active);
    let others = if spec.only_active { Vec::new() } else { striped(image, |active| !active) };
    if active.is_empty() {
        return refuse(ErrorCode::InvalidReplicationFactor, "All brokers are currently fenced.");
    }
    if active.len() + others.len() < replication_factor {
        return refuse(
            ErrorCode::InvalidReplicationFactor,
            format!(
                "Unable to replicate the partition {replication_factor} time(s): The target replication factor \
                 of {replication_factor} cannot be reached because only {} broker(s) are {}.",
                active.len() + others.len(),
                if spec.only_active { "active" } else { "registered" },
            ),
        );
    }
    Ok((0..spec.partitions)
        .map(|index| {
            let partition = (spec.first_partition + index) as usize;
            let mut replicas = pick(&active, partition, replication_factor.min(active.len()), seed);
            let missing = replication_factor - replicas.len();
            replicas.extend(pick(&others, partition, missing, seed));
            replicas
        })
        .collect())
}

type Racked<'a> = (BrokerId, Option<&'a str>);

/// Brokers of the wanted kind, neighbours in different racks.
fn striped(image: &MetadataImage, wanted: impl Fn(bool) -> bool) -> Vec<Racked<'_>> {
    let mut racks: BTreeMap<Option<&str>, Vec<BrokerId>> = BTreeMap::new();
    for (id, broker) in &image.brokers {
        if wanted(broker.is_active()) {
            racks.entry(broker.rack.as_deref()).or_default().push(*id);
        }
    }
    let longest = racks.values().map(Vec::len).max().unwrap_or(0);
    let mut list = Vec::new();
    for index in 0..longest {
        for (rack, brokers) in &racks {
            list.extend(brokers.get(index).map(|broker| (*broker, *rack)));
        }
    }
    list
}

fn pick(brokers: &[Racked<'_>], partition: usize, count: usize, seed: PlacementSeed) -> Vec<BrokerId> {
    let total = brokers.len();
    if count == 0 || total == 0 {
        return Vec::new();
    }
    let racks: HashSet<Option<&str>> = brokers.iter().map(|(_, rack)| *rack).collect();
    let start = (seed.start as usize + partition) % total;
    let shift = (seed.shift as usize + partition / total) % total.max(2).saturating_sub(1).max(1);
    let (first, rack) = brokers[start];
    let mut chosen = vec![first];
    let mut racks_used: HashSet<Option<&str>> = HashSet::from([rack]);
    let mut distance = 0;
    while chosen.len() < count {
        // Each step goes to a broker not looked at since the last choice; after a whole round the
        // demand for a fresh rack is dropped.
        let index = (start + 1 + (shift + distance) % (total - 1)) % total;
        let (broker, rack) = brokers[index];
        let round_done = distance >= total - 1;
        let rack_is_fresh = !racks_used.contains(&rack) || racks_used.len() == racks.len();
        if !chosen.contains(&broker) && (rack_is_fresh || round_done) {
            chosen.push(broker);
            racks_used.insert(rack);
            distance = 0;
            continue;
        }
        distance += 1;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing::*;
    use proptest::prelude::*;

    fn spec(partitions: i32, replication_factor: i16) -> PlacementSpec {
        PlacementSpec { first_partition: 0, partitions, replication_factor, only_active: false }
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_balanced_and_on_different_racks(
            brokers in 1i32..9, racks in 1i32..4, factor in 1i16..4, partitions in 1i32..40,
            start in any::<u32>(), shift in any::<u32>(),
        ) {
            prop_assume!(i32::from(factor) <= brokers);
            let mut image = MetadataImage::default();
            for broker in 0..brokers {
                let rack = format!("r{}", broker % racks);
                let epoch = replay(&mut image, vec![register(broker, Some(&rack))]);
                replay(&mut image, vec![fence(broker, epoch.0, false)]);
            }
            let placed = place(&image, spec(partitions, factor), PlacementSeed { start, shift }).unwrap();
            prop_assert_eq!(placed.len(), partitions as usize);
            let mut leads = vec![0i32; brokers as usize];
            for replicas in &placed {
                let distinct: HashSet<_> = replicas.iter().collect();
                prop_assert_eq!(distinct.len(), factor as usize);
                let used: HashSet<i32> = replicas.iter().map(|id| id.0 % racks).collect();
                prop_assert_eq!(used.len() as i32, i32::from(factor).min(racks).min(brokers));
                leads[replicas[0].0 as usize] += 1;
            }
            prop_assert!(leads.iter().max().unwrap() - leads.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn fenced_brokers_only_fill_up_and_never_for_mirrors() {
        let mut image = with_brokers(&[1, 2]);
        replay(&mut image, vec![register(3, None)]);
        let seed = PlacementSeed { start: 0, shift: 0 };
        for replicas in place(&image, spec(6, 3), seed).unwrap() {
            assert_eq!(replicas[2], BrokerId(3));
        }
        let mirror = PlacementSpec { only_active: true, ..spec(6, 3) };
        assert_eq!(place(&image, mirror, seed).unwrap_err().code, ErrorCode::InvalidReplicationFactor);
        assert!(place(&image, spec(1, 4), seed).is_err());
        assert!(place(&MetadataImage::default(), spec(1, 1), seed).is_err());
    }
}
