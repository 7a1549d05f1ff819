//! Why a partition is FAILED or waits, and when it is tried again.

use std::fmt;

/// What an operator has to know about a FAILED partition. The text of each kind begins its reason in
/// state records, Describe and metrics, and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Our records are not, or no longer, in the source's log.
    SourceShorter,
    /// The source cut its own log below our end.
    SourceCut,
    /// The addresses lead to another cluster than at first contact.
    OtherSourceCluster,
    /// The addresses lead back to this cluster.
    OwnCluster,
    /// The name belongs to another topic id at the source.
    TopicIdMismatch,
    /// The source has fewer partitions than this topic.
    FewerPartitions,
    CorruptBatch,
    /// Batches that are not what was asked for: offsets below or out of order.
    UnexpectedOffset,
    /// A batch claims an epoch that the source itself does not know.
    BatchEpochAboveSource,
    /// An epoch so far above ours that it can only be damage.
    EpochJump,
    TieredStorage,
    /// The local log refused the append.
    LocalStorage,
    /// The source hands out producer ids of this cluster's own range (decision 6).
    ProducerIdRange,
    /// The controller does not record this source for another reason.
    FirstContact,
}

impl FailureKind {
    pub const ALL: [FailureKind; 14] = [
        FailureKind::SourceShorter,
        FailureKind::SourceCut,
        FailureKind::OtherSourceCluster,
        FailureKind::OwnCluster,
        FailureKind::TopicIdMismatch,
        FailureKind::FewerPartitions,
        FailureKind::CorruptBatch,
        FailureKind::UnexpectedOffset,
        FailureKind::BatchEpochAboveSource,
        FailureKind::EpochJump,
        FailureKind::TieredStorage,
        FailureKind::LocalStorage,
        FailureKind::ProducerIdRange,
        FailureKind::FirstContact,
    ];

    pub fn text(self) -> &'static str {
        match self {
            FailureKind::SourceShorter => "source log is shorter",
            FailureKind::SourceCut => "source was cut",
            FailureKind::OtherSourceCluster => "source is another cluster",
            FailureKind::OwnCluster => "source is this cluster",
            FailureKind::TopicIdMismatch => "source topic has another id",
            FailureKind::FewerPartitions => "source topic has fewer partitions",
            FailureKind::CorruptBatch => "corrupt batch",
            FailureKind::UnexpectedOffset => "unexpected offset",
            FailureKind::BatchEpochAboveSource => "batch epoch is above the source's",
            FailureKind::EpochJump => "epoch jump",
            FailureKind::TieredStorage => "offset moved to tiered storage",
            FailureKind::LocalStorage => "local log",
            FailureKind::ProducerIdRange => "source uses this cluster's producer ids",
            FailureKind::FirstContact => "source was not recorded",
        }
    }
}

/// A kind and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReason {
    pub kind: FailureKind,
    pub detail: String,
}

impl FailureReason {
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> FailureReason {
        FailureReason { kind, detail: detail.into() }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            return f.write_str(self.kind.text());
        }
        write!(f, "{}: {}", self.kind.text(), self.detail)
    }
}

/// Why a question to the source has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFailure {
    /// Could not ask: connection, timeout, authorization, no leader. Never read as an answer
    /// (invariant 7); asked again after a pause, the state stays.
    CouldNotAsk(String),
    /// The answer itself is the fault.
    Failed(FailureReason),
}

impl fmt::Display for SourceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceFailure::CouldNotAsk(why) => write!(f, "could not ask the source: {why}"),
            SourceFailure::Failed(reason) => reason.fmt(f),
        }
    }
}

/// The time and the chance of one step (decision 7: both enter pure code as arguments).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub now_ms: i64,
    /// Uniform over the whole range.
    pub random: u32,
    pub retry: RetryPolicy,
}

/// `mirror.failed.retry.initial.backoff.ms` and `mirror.failed.retry.max.backoff.ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub initial_ms: i64,
    pub maximum_ms: i64,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy { initial_ms: 1_000, maximum_ms: 300_000 }
    }
}

const PAUSE_INITIAL_MS: i64 = 100;
const PAUSE_MAXIMUM_MS: i64 = 5_000;

impl Moment {
    /// Delay before the next try of a FAILED partition: doubling up to its limit, each 20 % more or
    /// less.
    pub fn retry_delay_ms(self, attempt: u32) -> i64 {
        self.doubling(self.retry.initial_ms, self.retry.maximum_ms, attempt)
    }

    /// Pause before a question that could not be asked is asked again.
    pub fn pause_ms(self, attempt: u32) -> i64 {
        self.doubling(PAUSE_INITIAL_MS, PAUSE_MAXIMUM_MS, attempt)
    }

    fn doubling(self, initial_ms: i64, maximum_ms: i64, attempt: u32) -> i64 {
        let base = initial_ms.max(1).saturating_mul(1 << attempt.min(30)).min(maximum_ms.max(1));
        // 0.8 to 1.2, in parts of a thousand.
        let thousandths = 800 + i64::from(self.random) * 400 / i64::from(u32::MAX);
        base * thousandths / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_within_their_limits() {
        let at = |random| Moment { now_ms: 0, random, retry: RetryPolicy::default() };
        let middle = at(u32::MAX / 2);
        assert_eq!(middle.retry_delay_ms(0), 999);
        assert_eq!(middle.retry_delay_ms(3), 7_992);
        assert_eq!(at(u32::MAX).retry_delay_ms(40), 360_000);
        assert_eq!(at(0).pause_ms(40), 4_000);
    }

    #[test]
    fn a_reason_begins_with_the_fixed_text_of_its_kind() {
        for kind in FailureKind::ALL {
            assert!(FailureReason::new(kind, "x").to_string().starts_with(kind.text()));
        }
    }
}
