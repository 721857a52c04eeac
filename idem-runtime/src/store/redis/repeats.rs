use std::sync::atomic::{AtomicU32, Ordering};

const LANES: usize = 64;
const ONE: u32 = 1 << 16;

/// The share of recent calls that were replays, for each operation.
///
/// Where nearly all are, a plain read answers them for a little more than half of what the
/// reserving script costs the server; the others pay a second trip for it. Lanes may be shared by
/// operations and updates lost under contention, which only blurs the share.
#[derive(Debug)]
pub(super) struct Repeats([AtomicU32; LANES]);

impl Repeats {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(0)))
    }

    pub(super) fn lane(&self, scope: &str) -> &AtomicU32 {
        let hash = scope.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        &self.0[usize::from(hash.to_be_bytes()[0]) % LANES]
    }
}

/// Whether at least three quarters of the recent calls were replays.
pub(super) fn prevail(lane: &AtomicU32) -> bool {
    lane.load(Ordering::Relaxed) >= ONE / 4 * 3
}

/// Counts a call: an exponentially weighted mean over about sixteen of them.
pub(super) fn count(lane: &AtomicU32, replayed: bool) {
    let old = lane.load(Ordering::Relaxed);
    let sample = if replayed { ONE } else { 0 };
    let new = old - old / 16 + sample / 16;
    if new != old {
        lane.store(new, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_run_of_replays_prevails() {
        let repeats = Repeats::new();
        let lane = repeats.lane("pay");
        assert!(!prevail(lane));
        (0..40).for_each(|_| count(lane, true));
        assert!(prevail(lane));
        (0..200).for_each(|call| count(lane, call % 2 == 0));
        assert!(!prevail(lane));
    }
}
