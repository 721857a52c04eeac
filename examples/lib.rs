//! Shared pieces of the examples.

/// The SplitMix64 generator: small, fast, and the same numbers on every machine for one seed.
///
/// It makes test data and spreads retries; it is not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included; `low` if there is none.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low) as u128 + 1;
        // The high half of the product: even to within 2^-64 of the width, and never a division.
        low + ((self.next_u64() as u128 * width) >> 64) as u64
    }

    /// True `percent` times in a hundred.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.between(1, 100) <= percent
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let last = (choices.len() as u64).saturating_sub(1);
        &choices[self.between(0, last) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn the_sequence_of_a_seed_is_fixed() {
        let mut numbers = SplitMix64::new(1_234_567);
        assert_eq!(numbers.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(numbers.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn between_stays_in_its_bounds_and_meets_both() {
        let mut numbers = SplitMix64::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| numbers.between(3, 5)).collect();
        assert!(drawn.iter().all(|n| (3..=5).contains(n)));
        assert!(drawn.contains(&3) && drawn.contains(&5));
        assert_eq!(numbers.between(7, 7), 7);
        assert!(numbers.between(0, u64::MAX) > 0);
    }
}
