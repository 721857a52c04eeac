//! CPU time of this process and of a local server's processes, from `/proc`. Other load on the machine
//! disturbs it much less than it disturbs wall-clock time.

use std::fs;

use sqlx::PgPool;

/// Clock ticks a second; Linux has had 100 on every platform for decades.
const TICKS: f64 = 100.0;

/// Seconds of CPU that this process has used.
pub fn own() -> f64 {
    of("self")
}

fn of(pid: &str) -> f64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return 0.0;
    };
    // Fields are counted from behind the command's name, which may contain anything.
    let Some((_, fields)) = stat.rsplit_once(") ") else {
        return 0.0;
    };
    let tick = |n: usize| {
        fields
            .split(' ')
            .nth(n)
            .and_then(|f| f.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (tick(11) + tick(12)) / TICKS
}

/// The processes whose CPU time counts as the server's.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    postgres: Option<PgPool>,
    pids: Vec<String>,
}

impl Servers {
    /// The backends of a local Postgres.
    pub fn postgres(pool: PgPool) -> Self {
        Self {
            postgres: Some(pool),
            pids: Vec::new(),
        }
    }

    /// These processes as well.
    #[must_use]
    pub fn and_pids(mut self, pids: impl IntoIterator<Item = u32>) -> Self {
        self.pids
            .extend(pids.into_iter().map(|pid| pid.to_string()));
        self
    }

    pub(crate) async fn total(&self) -> f64 {
        let mut pids = self.pids.clone();
        if let Some(pool) = &self.postgres {
            let active =
                "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'client backend'";
            pids.extend(
                sqlx::query_scalar::<_, String>(active)
                    .fetch_all(pool)
                    .await
                    .unwrap_or_default(),
            );
        }
        pids.iter().map(|pid| of(pid)).sum()
    }
}
