//! PURE. Growing pauses between attempts, spread by jitter so that followers do not retry in step.

/// The pause before attempt number `attempt` (0 is the first retry): doubles from `first_ms` up to
/// `max_ms`, then takes a share between half and all of it; `random` is any number.
pub fn pause_ms(attempt: u32, first_ms: u64, max_ms: u64, random: u64) -> u64 {
    let doubled = first_ms.saturating_mul(1_u64.checked_shl(attempt.min(32)).unwrap_or(u64::MAX));
    let full = doubled.min(max_ms).max(1);
    let half = full / 2;
    half + random % (full - half + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_spread_over_their_upper_half() {
        for (attempt, least, most) in
            [(0, 10, 20), (1, 20, 40), (3, 80, 160), (10, 500, 1_000), (99, 500, 1_000)]
        {
            let pauses: Vec<u64> = (0..2_000).map(|random| pause_ms(attempt, 20, 1_000, random)).collect();
            assert_eq!(pauses.iter().min(), Some(&least), "attempt {attempt}");
            assert_eq!(pauses.iter().max(), Some(&most), "attempt {attempt}");
        }
        assert_eq!(pause_ms(0, 0, 0, 7), 1);
    }
}
