//! Shared pieces of the examples.

use std::error::Error;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

/// A SQLite file in a folder of its own, which goes with the value.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new folder below the system's temporary one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> std::io::Result<Self> {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let name = format!("idem-example-{}-{}", std::process::id(), since.as_nanos());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory)?;
        Ok(Self(directory))
    }

    /// The file, as a connection's address; it is not there yet.
    #[must_use]
    pub fn url(&self) -> String {
        format!("sqlite://{}/example.db", self.0.display())
    }

    /// The file, with the framework's table and those of `schema`, for `connections` at a time.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn open(
        &self,
        schema: &'static str,
        connections: u32,
    ) -> Result<SqlitePool, Box<dyn Error>> {
        let options = SqliteConnectOptions::from_str(&self.url())?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().max_connections(connections);
        let pool = pool.connect_with(options).await?;
        idem::store::sqlite::migrate(&pool).await?;
        sqlx::raw_sql(schema).execute(&pool).await?;
        Ok(pool)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}

/// Ends the retention of every record, as if their `ttl` had passed.
///
/// # Errors
/// The database cannot be used.
pub async fn records_expire(pool: &SqlitePool) -> Result<(), sqlx::Error> {
    let past = "UPDATE idem_record SET expires_at = 1 WHERE expires_at IS NOT NULL";
    sqlx::query(past).execute(pool).await.map(drop)
}

/// What an example found, printed line by line and held against what must come out.
#[derive(Debug)]
#[must_use = "the verdict is the exit status"]
pub struct Findings {
    pool: SqlitePool,
    wrong: usize,
}

#[allow(clippy::print_stdout, reason = "an example talks to its reader")]
impl Findings {
    /// Nothing found yet; numbers are read from `pool`.
    pub fn new(pool: &SqlitePool) -> Self {
        let pool = pool.clone();
        Self { pool, wrong: 0 }
    }

    /// What is attacked next.
    pub fn attack(&self, what: &str) {
        println!("{what}");
    }

    /// Something that came out, and what must.
    pub fn row<T: Display + PartialEq<U>, U: Display>(&mut self, what: &str, found: T, must: U) {
        let good = found == must;
        println!("    {what:<42} {found}");
        self.wrong_unless(good, &must);
    }

    /// The one number that a query answers, and the one that it must.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn number(
        &mut self,
        what: &str,
        query: &'static str,
        must: i64,
    ) -> Result<(), sqlx::Error> {
        let found: i64 = sqlx::query_scalar(query).fetch_one(&self.pool).await?;
        self.row(what, found, must);
        Ok(())
    }

    /// An answer that must be an error which says `must`.
    pub fn refused<T, E: Display>(&mut self, what: &str, answer: &Result<T, E>, must: &str) {
        let said = match answer {
            Ok(_) => "not refused".to_owned(),
            Err(error) => error.to_string(),
        };
        // What the framework adds about the record is for the log.
        let short = said.split(" [").next().unwrap_or_default();
        println!("    {what:<42} {short}");
        self.wrong_unless(answer.is_err() && said.contains(must), &must);
    }

    fn wrong_unless(&mut self, good: bool, must: &dyn Display) {
        if !good {
            self.wrong += 1;
            println!("    {:<42} {must}", "  and must be");
        }
    }

    /// Success if everything was as it must be.
    #[must_use]
    pub fn verdict(self) -> ExitCode {
        if self.wrong == 0 {
            return ExitCode::SUCCESS;
        }
        eprintln!("{} of these are wrong", self.wrong);
        ExitCode::FAILURE
    }
}

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
