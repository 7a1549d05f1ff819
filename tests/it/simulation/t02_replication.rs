//! The traces behind KIP-101, KIP-279 and KIP-320, and one of our own.

use kagami_tests::simulation::event::Node;
use kagami_tests::simulation::{Profile, Scenario};

const CLUSTER: usize = 0;

fn others(scenario: &Scenario, leader: Node) -> Vec<Node> {
    scenario.world.all_nodes().into_iter().filter(|node| *node != leader).collect()
}

/// KIP-101, first trace: a follower that has a record, but not the high watermark above it, restarts and
/// leads at once. Truncating to the high watermark would lose the record.
#[test]
fn kip_101_a_restarted_follower_keeps_what_was_acknowledged() {
    let mut scenario = Scenario::start(Profile { min_insync_replicas: 2, ..Profile::quiet(1, 3) });
    let leader = scenario.leader(CLUSTER).expect("a leader");
    let follower = others(&scenario, leader)[0];
    let first = scenario.produce(leader, true);
    scenario.until("the first is committed", |world| world.truth(CLUSTER, 0).end() == 1);
    let second = scenario.produce(leader, true);
    scenario.until("the second is committed", |world| world.truth(CLUSTER, 0).end() == 2);
    // It has the record; of the high watermark it has heard nothing.
    scenario.kill(follower);
    scenario.world.broker_mut(follower).disks[0].as_mut().expect("a disk").high_watermark = 0;
    scenario.restart(follower);
    scenario.run_ms(2_500);
    scenario.kill(leader);
    scenario.until("another leads", |world| {
        let image = world.clusters[CLUSTER].image();
        let partition = image.partition(kagami_tests::simulation::world::partition_id(0));
        partition.and_then(|partition| partition.registration.leader).is_some_and(|id| id != leader.id())
    });
    scenario.run_ms(1_000);
    let now = scenario.leader(CLUSTER).expect("a leader");
    assert_eq!(scenario.values(now), [first, second]);
    assert_eq!(scenario.end(), None);
}

/// KIP-101, second trace: both lose power, come back in the other order, and would hold different records
/// at one offset.
#[test]
fn kip_101_logs_do_not_diverge_after_a_hard_failure() {
    let profile = Profile { unclean_elections: true, sync: 0, ..Profile::quiet(1, 2) };
    let mut scenario = Scenario::start(profile);
    let leader = scenario.leader(CLUSTER).expect("a leader");
    let follower = others(&scenario, leader)[0];
    scenario.produce(leader, true);
    scenario.until("it is committed", |world| world.truth(CLUSTER, 0).end() == 1);
    scenario.lose_power(follower);
    scenario.produce(leader, false);
    scenario.run_ms(50);
    scenario.lose_power(leader);
    scenario.restart(follower);
    scenario.run_ms(6_000);
    scenario.produce(follower, false);
    scenario.run_ms(200);
    scenario.restart(leader);
    scenario.run_ms(4_000);
    assert_eq!(scenario.values(leader), scenario.values(follower));
    assert_eq!(scenario.end(), None);
}

/// KIP-279: the leadership goes to and fro faster than the follower learns of it, each leader writes under
/// its own epoch, and one of the epochs is known to one of them only.
#[test]
fn kip_279_fast_leader_changes_leave_no_divergence() {
    let profile = Profile { unclean_elections: true, ..Profile::quiet(1, 2) };
    let mut scenario = Scenario::start(profile);
    let first = scenario.leader(CLUSTER).expect("a leader");
    let second = others(&scenario, first)[0];
    scenario.produce(first, true);
    scenario.run_ms(100);
    for _ in 0..3 {
        for (leaves, leads) in [(first, second), (second, first)] {
            scenario.kill(leaves);
            scenario.restart(leads);
            scenario.run_ms(6_000);
            scenario.produce(leads, false);
            scenario.produce(leads, false);
            scenario.run_ms(30);
            // It dies before the other one has fetched.
            scenario.restart(leaves);
            scenario.kill(leads);
            scenario.run_ms(6_000);
            scenario.produce(leaves, false);
            scenario.run_ms(30);
        }
    }
    scenario.restart(first);
    scenario.restart(second);
    scenario.run_ms(5_000);
    assert_eq!(scenario.values(first), scenario.values(second));
    assert_eq!(scenario.end(), None);
}

/// KIP-320: a deposed leader that does not know it goes on; whoever knows the new epoch is not served by
/// it, what it takes is not acknowledged, and is gone when it follows.
#[test]
fn kip_320_a_deposed_leader_neither_serves_nor_acknowledges() {
    let mut scenario = Scenario::start(Profile { min_insync_replicas: 2, ..Profile::quiet(1, 3) });
    let old = scenario.leader(CLUSTER).expect("a leader");
    let first = scenario.produce(old, true);
    scenario.run_ms(200);
    scenario.world.broken_controller_links.push(old);
    for other in others(&scenario, old) {
        scenario.cut_link(old, other);
    }
    scenario.until("another leads", |world| {
        let image = world.clusters[CLUSTER].image();
        let partition = image.partition(kagami_tests::simulation::world::partition_id(0));
        partition.and_then(|partition| partition.registration.leader).is_some_and(|id| id != old.id())
    });
    let new = scenario.leader(CLUSTER).expect("a leader");
    let stale = scenario.produce(old, true);
    let second = scenario.produce(new, true);
    scenario.run_ms(2_500);
    assert_eq!(scenario.committed(CLUSTER), [first, second]);
    assert!(scenario.values(old).contains(&stale), "it took the record, and nobody was told");
    scenario.mend();
    scenario.run_ms(4_000);
    assert_eq!(scenario.values(old), [first, second]);
    assert_eq!(scenario.end(), None);
}

/// A leader under which nothing was written has an epoch at its end that the next one never hears of.
#[test]
fn leaders_that_write_nothing_follow_each_other() {
    let mut scenario = Scenario::start(Profile::quiet(1, 3));
    for _ in 0..4 {
        let leader = scenario.leader(CLUSTER).expect("a leader");
        scenario.kill(leader);
        scenario.run_ms(4_500);
        scenario.restart(leader);
        scenario.run_ms(4_000);
        assert_eq!(scenario.isr(CLUSTER), 3);
    }
    assert_eq!(scenario.end(), None);
}
