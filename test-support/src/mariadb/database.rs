//! A database per test.

use std::{str::FromStr, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor,
    mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions, MySqlSslMode},
};

use crate::{
    drop_database,
    proxy::{Proxy, Wire},
    server_url, unique_name,
};

const VARIABLE: &str = "IDEM_TEST_MARIADB_URL";

/// The MariaDB server of this test run.
#[derive(Debug)]
pub struct MariaDb;

impl MariaDb {
    /// The server's own URL, `mysql://user@host:port/database`.
    ///
    /// # Panics
    /// When the run has no server: a test that cannot test anything must not pass.
    #[must_use]
    pub fn url() -> String {
        server_url(VARIABLE, "MariaDB")
    }

    /// Creates an empty database; the guard drops it.
    pub async fn database() -> MariaDbDatabase {
        MariaDbDatabase::on(&Self::url()).await
    }
}

/// An empty database of the test's own, dropped with this value.
///
/// After a panic it stays and its name is printed, so that one can look at what the test left.
#[derive(Debug)]
pub struct MariaDbDatabase {
    server: MySqlConnectOptions,
    url: String,
    name: String,
}

impl MariaDbDatabase {
    /// Creates one on the server of this URL.
    pub async fn on(server: &str) -> Self {
        let name = unique_name();
        let server = options(server);
        let mut connection = connect(&server).await;
        connection
            .execute(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await
            .unwrap_or_else(|error| panic!("cannot create the test database {name}: {error}"));
        connection.close().await.ok();
        let url = server.clone().database(&name).to_url_lossy();
        Self {
            server,
            url: url.into(),
            name,
        }
    }

    /// The database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database's URL, for a child process.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The options that [`pool`](Self::pool) connects with.
    #[must_use]
    pub fn options(&self) -> MySqlConnectOptions {
        self.server.clone().database(&self.name)
    }

    /// A pool of at most `max` connections, with one already made.
    pub async fn pool(&self, max: u32) -> MySqlPool {
        pool(&self.url, max).await
    }

    /// One connection outside any pool.
    pub async fn connect(&self) -> MySqlConnection {
        connect(&self.options()).await
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

    /// How many sessions of this database wait for the lock of a row.
    ///
    /// # Panics
    /// When the server does not tell.
    pub async fn waiting_for_lock(&self) -> usize {
        let mut connection = connect(&self.server).await;
        // The table of transactions is a copy that is never renewed while it is asked often.
        let (_, _, status): (String, String, String) = sqlx::query_as("SHOW ENGINE INNODB STATUS")
            .fetch_one(&mut connection)
            .await
            .expect("the server tells its transactions");
        let ours = sessions(&mut connection, &self.name).await;
        connection.close().await.ok();
        let ours = ours.expect("the server tells its sessions");
        let waiting = status
            .split("---TRANSACTION")
            .filter(|transaction| transaction.contains("\nLOCK WAIT"))
            .filter_map(|transaction| {
                let (_, rest) = transaction.split_once("thread id ")?;
                rest.split_once(',')?.0.parse::<i64>().ok()
            });
        waiting.filter(|session| ours.contains(session)).count()
    }

    /// Waits until a session of this database waits for the lock of a row.
    ///
    /// # Panics
    /// When that takes longer than thirty seconds.
    pub async fn until_one_waits(&self) {
        for _ in 0..1500 {
            if self.waiting_for_lock().await > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no session of {} waits for a lock", self.name);
    }

    /// A proxy in front of the server.
    #[must_use]
    pub fn proxy(&self) -> Proxy {
        Proxy::start(
            (self.server.get_host(), self.server.get_port()),
            Wire::MySql,
        )
    }

    /// The options to connect by way of a [`proxy`](Self::proxy).
    #[must_use]
    pub fn options_through(&self, proxy: &Proxy) -> MySqlConnectOptions {
        let addr = proxy.addr();
        self.options()
            .host(&addr.ip().to_string())
            .port(addr.port())
    }

    /// A pool by way of a [`proxy`](Self::proxy). It connects when it is first used, so that every
    /// connection the proxy counts was asked for by the code under test.
    #[must_use]
    pub fn pool_through(&self, proxy: &Proxy, max: u32) -> MySqlPool {
        pool_options(max).connect_lazy_with(self.options_through(proxy))
    }
}

impl Drop for MariaDbDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        drop_database(&self.url, async move {
            let mut connection = server.connect().await?;
            // An open transaction of theirs would hold it.
            for session in sessions(&mut connection, &name).await? {
                // It may have ended by now.
                let kill = AssertSqlSafe(format!("KILL {session}"));
                connection.execute(kill).await.ok();
            }
            let sql = AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"));
            connection.execute(sql).await?;
            connection.close().await
        });
    }
}

async fn sessions(connection: &mut MySqlConnection, name: &str) -> Result<Vec<i64>, sqlx::Error> {
    let sql = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = ?";
    let sessions = sqlx::query_scalar(sql).bind(name);
    sessions.fetch_all(connection).await
}

/// A pool for a database that another process made: what a child does with the URL it was given.
pub async fn pool(url: &str, max: u32) -> MySqlPool {
    pool_options(max)
        .connect_with(options(url))
        .await
        .unwrap_or_else(|error| panic!("cannot connect to {url}: {error}"))
}

fn pool_options(max: u32) -> MySqlPoolOptions {
    MySqlPoolOptions::new()
        .max_connections(max)
        .acquire_timeout(Duration::from_secs(30))
}

/// Unencrypted, so that a proxy can read along.
fn options(url: &str) -> MySqlConnectOptions {
    MySqlConnectOptions::from_str(url)
        .unwrap_or_else(|error| panic!("{url} is no MySQL URL: {error}"))
        .ssl_mode(MySqlSslMode::Disabled)
}

async fn connect(options: &MySqlConnectOptions) -> MySqlConnection {
    options
        .connect()
        .await
        .unwrap_or_else(|error| panic!("cannot connect to the MariaDB server: {error}"))
}
