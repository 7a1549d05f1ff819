//! One partition in, at most one change out: who is in sync, who is eligible, who leads (KIP-966).
//!
//! The rules, in the order in which they are applied:
//! 1. Below `min.insync.replicas` a replica that leaves the ISR stays *eligible*: nothing was
//!    acknowledged to acks=all after it left. At or above it nobody but the ISR is.
//! 2. A broker that stopped uncleanly may have lost its tail: it leaves ISR and ELR (decision 4).
//! 3. A reassignment whose new replicas are all in sync is done: the leaving ones go.
//! 4. The leader comes from the ISR, else from the ELR, else uncleanly: where nobody is left and it was
//!    the last leader, or where the topic allows it. An unclean leader is RECOVERING, which later
//!    elections keep; only its LOSS cut ends it (decision 10).
//! 5. Where a replica goes, the leader epoch rises, so that its fetches are fenced.

use common::ids::{BrokerId, DirectoryId};
use common::metadata::MetadataImage;
use common::metadata::record::{LeaderRecoveryState, PartitionChange, PartitionRegistration};

/// Works out the next registration of one partition.
pub struct PartitionChangeBuilder<'a> {
    current: &'a PartitionRegistration,
    may_lead: &'a dyn Fn(BrokerId) -> bool,
    image: Option<&'a MetadataImage>,
    min_insync_replicas: usize,
    replicas: Vec<BrokerId>,
    adding: Vec<BrokerId>,
    removing: Vec<BrokerId>,
    isr: Vec<BrokerId>,
    unclean_shutdown: Option<BrokerId>,
    allow_unclean: bool,
    prefer_first: bool,
    forget_eligible: bool,
}

struct Elected {
    leader: Option<BrokerId>,
    unclean: bool,
}

impl<'a> PartitionChangeBuilder<'a> {
    pub fn new(
        current: &'a PartitionRegistration,
        min_insync_replicas: usize,
        may_lead: &'a dyn Fn(BrokerId) -> bool,
    ) -> PartitionChangeBuilder<'a> {
        PartitionChangeBuilder {
            current,
            may_lead,
            image: None,
            min_insync_replicas,
            replicas: current.replicas.clone(),
            adding: current.adding_replicas.clone(),
            removing: current.removing_replicas.clone(),
            isr: current.isr.clone(),
            unclean_shutdown: None,
            allow_unclean: false,
            prefer_first: false,
            forget_eligible: false,
        }
    }

    pub fn min_insync_replicas(mut self, count: usize) -> Self {
        self.min_insync_replicas = count;
        self
    }

    /// Only replicas lead whose directory is there.
    pub fn with_directories_of(mut self, image: &'a MetadataImage) -> Self {
        self.image = Some(image);
        self
    }

    fn may_lead(&self, broker: BrokerId) -> bool {
        (self.may_lead)(broker)
            && self.image.is_none_or(|image| image.has_replica_directory(self.current, broker))
    }

    /// Where the replicas shall be: those that come, and those that go once the others are in sync.
    pub fn reassign(
        mut self,
        replicas: Vec<BrokerId>,
        adding: Vec<BrokerId>,
        removing: Vec<BrokerId>,
    ) -> Self {
        self.replicas = replicas;
        self.adding = adding;
        self.removing = removing;
        self
    }

    pub fn isr(mut self, isr: Vec<BrokerId>) -> Self {
        self.isr = isr;
        self
    }

    pub fn without(mut self, broker: BrokerId) -> Self {
        self.isr.retain(|member| *member != broker);
        self
    }

    /// The broker's previous incarnation did not stop cleanly.
    pub fn unclean_shutdown(mut self, broker: BrokerId) -> Self {
        self.unclean_shutdown = Some(broker);
        self.without(broker)
    }

    pub fn allow_unclean(mut self, allow: bool) -> Self {
        self.allow_unclean = allow;
        self
    }

    /// Move the leadership to the first replica if it is in sync.
    pub fn prefer_first(mut self) -> Self {
        self.prefer_first = true;
        self
    }

    /// `min.insync.replicas` changed: whoever was eligible under the old value may lack what is
    /// acknowledged under the new one.
    pub fn forget_eligible(mut self) -> Self {
        self.forget_eligible = true;
        self
    }

    pub fn build(mut self) -> Option<PartitionChange> {
        self.complete_reassignment();
        self.min_insync_replicas = self.min_insync_replicas.min(self.replicas.len()).max(1);
        let (mut elr, mut last_known_elr) = self.eligible();
        let elected = self.elect(&elr, &last_known_elr);
        if let Some(leader) = elected.leader {
            if elected.unclean {
                self.isr = vec![leader];
                elr.clear();
                last_known_elr.clear();
            } else if !self.isr.contains(&leader) {
                self.isr.push(leader);
                elr.retain(|member| *member != leader);
                if self.isr.len() >= self.min_insync_replicas {
                    elr.clear();
                    last_known_elr.clear();
                }
                last_known_elr.retain(|member| *member != leader);
            }
        }
        if self.isr.is_empty() {
            // Remembered when the partition loses its leader: the one that may be elected should
            // nobody eligible be left.
            last_known_elr = match self.current.leader {
                Some(leader) => vec![leader],
                None => self.current.last_known_elr.clone(),
            };
            last_known_elr.retain(|member| self.replicas.contains(member));
        }

        fn changed<T: PartialEq>(current: &T, next: T) -> Option<T> {
            (*current != next).then_some(next)
        }
        // A replica that goes must not count under the epoch in which it was one.
        let is_shed = self.current.replicas.iter().any(|replica| !self.replicas.contains(replica));
        let leader = changed(&self.current.leader, elected.leader).or(is_shed.then_some(elected.leader));
        let directories = self.directories();
        let change = PartitionChange {
            leader,
            replicas: changed(&self.current.replicas, self.replicas),
            directories: changed(&self.current.directories, directories),
            adding_replicas: changed(&self.current.adding_replicas, self.adding),
            removing_replicas: changed(&self.current.removing_replicas, self.removing),
            isr: changed(&self.current.isr, self.isr),
            elr: changed(&self.current.elr, elr),
            last_known_elr: changed(&self.current.last_known_elr, last_known_elr),
            leader_recovery_state: (elected.unclean
                && self.current.leader_recovery_state == LeaderRecoveryState::Recovered)
                .then_some(LeaderRecoveryState::Recovering),
            ..PartitionChange::default()
        };
        (change != PartitionChange::default()).then_some(change)
    }

    /// As Kafka: done when every new replica is in sync and somebody in sync stays. Not while the leader
    /// recovers: a sole replica would take its whole log for what was committed.
    fn complete_reassignment(&mut self) {
        if (self.adding.is_empty() && self.removing.is_empty())
            || self.current.leader_recovery_state == LeaderRecoveryState::Recovering
        {
            return;
        }
        let stays = |member: &&BrokerId| !self.removing.contains(member);
        let isr: Vec<BrokerId> = self.isr.iter().filter(stays).copied().collect();
        let may_somebody_lead = isr.iter().any(|member| self.may_lead(*member));
        if !may_somebody_lead || !self.adding.iter().all(|new| isr.contains(new)) {
            return;
        }
        let removing = std::mem::take(&mut self.removing);
        self.replicas.retain(|replica| !removing.contains(replica));
        self.adding.clear();
        self.isr = isr;
    }

    /// Those known, in the order of the replicas; a new replica's is not known yet.
    fn directories(&self) -> Vec<DirectoryId> {
        let known = |replica: &BrokerId| {
            let place = self.current.replicas.iter().position(|before| before == replica)?;
            self.current.directories.get(place).copied()
        };
        self.replicas.iter().map(|replica| known(replica).unwrap_or(DirectoryId::ZERO)).collect()
    }

    fn eligible(&self) -> (Vec<BrokerId>, Vec<BrokerId>) {
        if self.isr.len() >= self.min_insync_replicas || (self.forget_eligible && !self.isr.is_empty()) {
            return (Vec::new(), Vec::new());
        }
        let mut candidates = self.current.elr.clone();
        let mut known = self.current.last_known_elr.clone();
        for member in &self.current.isr {
            if !candidates.contains(member) {
                candidates.push(*member);
            }
        }
        known.extend(candidates.iter().filter(|member| !known.contains(member)).copied().collect::<Vec<_>>());
        candidates.retain(|member| self.replicas.contains(member));
        known.retain(|member| self.replicas.contains(member));
        candidates.retain(|member| !self.isr.contains(member) && self.unclean_shutdown != Some(*member));
        known.retain(|member| !self.isr.contains(member) && !candidates.contains(member));
        (candidates, known)
    }

    fn elect(&self, elr: &[BrokerId], last_known_elr: &[BrokerId]) -> Elected {
        let clean = |leader| Elected { leader: Some(leader), unclean: false };
        let in_sync = |broker: &BrokerId| self.isr.contains(broker) && self.may_lead(*broker);
        if self.prefer_first
            && let Some(first) = self.replicas.first().filter(|first| in_sync(first))
        {
            return clean(*first);
        }
        if let Some(leader) = self.current.leader.filter(in_sync) {
            return clean(leader);
        }
        if let Some(leader) = self.replicas.iter().find(|replica| in_sync(replica)) {
            return clean(*leader);
        }
        let is_eligible = |replica: &&BrokerId| elr.contains(replica) && self.may_lead(**replica);
        if let Some(leader) = self.replicas.iter().find(is_eligible) {
            return clean(*leader);
        }
        // It had the longest log when it was last seen.
        if let ([], [], [last]) = (self.isr.as_slice(), elr, last_known_elr)
            && self.may_lead(*last)
            && self.replicas.contains(last)
            && self.current.leader.is_none()
        {
            return Elected { leader: Some(*last), unclean: true };
        }
        if self.allow_unclean
            && let Some(leader) = self.replicas.iter().find(|replica| self.may_lead(**replica))
        {
            return Elected { leader: Some(*leader), unclean: true };
        }
        Elected { leader: None, unclean: false }
    }
}

#[cfg(test)]
#[path = "partition_change_tests.rs"]
mod tests;
