//! A fresh Postgres database per test.

use std::{str::FromStr, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor,
    postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions},
};

use crate::{
    drop_database,
    proxy::{Proxy, Wire},
    server_url, unique_name,
};

const VARIABLE: &str = "IDEM_TEST_POSTGRES_URL";

/// The Postgres server of this test run.
#[derive(Debug)]
pub struct Postgres;

impl Postgres {
    /// The server's own URL, `postgres://user@host:port/database`.
    ///
    /// # Panics
    /// When the run has no server: a test that cannot test anything must not pass.
    #[must_use]
    pub fn url() -> String {
        server_url(VARIABLE, "Postgres")
    }

    /// Creates an empty database; the guard drops it.
    pub async fn database() -> TestDatabase {
        let server = Self::url();
        let name = unique_name();
        let mut connection = connect(&server).await;
        connection
            .execute(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await
            .unwrap_or_else(|error| panic!("cannot create the test database {name}: {error}"));
        connection.close().await.ok();
        TestDatabase {
            url: with_database(&server, &name),
            server,
            name,
        }
    }
}

/// An empty database of the test's own, dropped with this value.
///
/// After a panic it stays and its name is printed, so that one can look at what the test left.
#[derive(Debug)]
pub struct TestDatabase {
    server: String,
    url: String,
    name: String,
}

impl TestDatabase {
    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database's URL, for a pool of one's own or for a child process.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The options that [`pool`](Self::pool) connects with.
    #[must_use]
    pub fn options(&self) -> PgConnectOptions {
        options(&self.url)
    }

    /// A pool of at most `max` connections, with one already made.
    pub async fn pool(&self, max: u32) -> PgPool {
        pool(&self.url, max).await
    }

    /// One connection outside any pool.
    pub async fn connect(&self) -> PgConnection {
        connect(&self.url).await
    }

    /// Runs one or more statements, for example to create the test's tables.
    pub async fn execute(&self, sql: &str) {
        let mut connection = self.connect().await;
        connection
            .execute(AssertSqlSafe(sql.to_owned()))
            .await
            .unwrap_or_else(|error| panic!("`{sql}` failed: {error}"));
        connection.close().await.ok();
    }

    /// How many sessions of this database sit in an open transaction and do nothing.
    pub async fn idle_in_transaction(&self) -> i64 {
        self.count_sessions("state LIKE 'idle in transaction%'")
            .await
    }

    /// How many sessions of this database wait for a lock.
    pub async fn waiting_for_lock(&self) -> i64 {
        self.count_sessions("wait_event_type = 'Lock'").await
    }

    /// How many sessions this database has.
    pub async fn sessions(&self) -> i64 {
        self.count_sessions("true").await
    }

    /// Waits until no session of this database is in a transaction: a dropped connection's
    /// transaction ends only when the server has noticed.
    ///
    /// # Panics
    /// When that takes longer than ten seconds.
    pub async fn quiet(&self) {
        for _ in 0..500 {
            if self.count_sessions("xact_start IS NOT NULL").await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!(
            "a session of {} is still in a transaction after ten seconds",
            self.name
        );
    }

    /// A proxy in front of the server.
    #[must_use]
    pub fn proxy(&self) -> Proxy {
        let options = self.options();
        Proxy::start((options.get_host(), options.get_port()), Wire::Postgres)
    }

    /// This database's URL by way of a [`proxy`](Self::proxy).
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy) -> String {
        let (scheme, rest) = self.url.split_once("://").expect("a URL has a scheme");
        let (authority, path) = rest.split_once('/').expect("the URL names the database");
        let user = authority
            .rsplit_once('@')
            .map_or(String::new(), |(user, _)| format!("{user}@"));
        format!("{scheme}://{user}{}/{path}", proxy.addr())
    }

    /// A pool by way of a [`proxy`](Self::proxy). It connects when it is first used, so that every
    /// connection the proxy counts was asked for by the code under test.
    #[must_use]
    pub fn pool_through(&self, proxy: &Proxy, max: u32) -> PgPool {
        pool_options(max).connect_lazy_with(options(&self.url_through(proxy)))
    }

    async fn count_sessions(&self, condition: &'static str) -> i64 {
        let mut connection = connect(&self.server).await;
        let count = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND {condition}"
        )))
        .bind(&self.name)
        .fetch_one(&mut connection)
        .await
        .expect("pg_stat_activity can be read");
        connection.close().await.ok();
        count
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let server = self.server.clone();
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        drop_database(&self.url, async move {
            let mut connection = options(&server).connect().await?;
            connection.execute(AssertSqlSafe(sql)).await?;
            connection.close().await
        });
    }
}

/// A pool for a database that another process made: what a child does with the URL it was given.
pub async fn pool(url: &str, max: u32) -> PgPool {
    pool_options(max)
        .connect_with(options(url))
        .await
        .unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
}

fn pool_options(max: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(max)
        .acquire_timeout(Duration::from_secs(30))
}

fn options(url: &str) -> PgConnectOptions {
    PgConnectOptions::from_str(url)
        .unwrap_or_else(|error| panic!("{url} is no Postgres URL: {error}"))
}

async fn connect(url: &str) -> PgConnection {
    options(url)
        .connect()
        .await
        .unwrap_or_else(|error| panic!("cannot connect to the Postgres server of {url}: {error}"))
}

/// The same server and parameters, another database.
fn with_database(url: &str, name: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .unwrap_or_else(|| panic!("{VARIABLE} is no URL: {url}"));
    let (before, query) = rest
        .split_once('?')
        .map_or((rest, None), |(b, q)| (b, Some(q)));
    let authority = before.split('/').next().unwrap_or_default();
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    format!("{scheme}://{authority}/{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn only_the_database_is_replaced() {
        let cases = [
            ("postgres://u@h:1/postgres", "postgres://u@h:1/n"),
            ("postgres://h", "postgres://h/n"),
            (
                "postgres://u:p@h/?sslmode=disable",
                "postgres://u:p@h/n?sslmode=disable",
            ),
            (
                "postgres://h?sslmode=disable",
                "postgres://h/n?sslmode=disable",
            ),
        ];
        for (url, expected) in cases {
            assert_eq!(with_database(url, "n"), expected);
        }
    }
}
