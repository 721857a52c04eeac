//! A fresh SQLite file per test.

use std::{path::PathBuf, time::Duration};

use sqlx::{
    ConnectOptions, Connection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions},
};

use crate::unique_name;

/// Where SQLite files come from.
#[derive(Debug)]
pub struct Sqlite;

impl Sqlite {
    /// Creates an empty database file in write-ahead mode, in a folder of its own.
    pub async fn file() -> SqliteFile {
        let folder = std::env::temp_dir().join(unique_name());
        std::fs::create_dir(&folder).expect("the temporary folder can be written");
        let file = SqliteFile { folder };
        // Write-ahead mode is kept in the file, so it holds for whoever opens it by its URL.
        let connection = file
            .options()
            .connect()
            .await
            .expect("SQLite opens a new file");
        connection.close().await.expect("SQLite closes a new file");
        file
    }
}

/// A database file, removed with this value; kept after a panic, which prints where it is.
#[derive(Debug)]
pub struct SqliteFile {
    folder: PathBuf,
}

impl SqliteFile {
    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join("test.sqlite")
    }

    /// The file's URL, for a child process.
    #[must_use]
    pub fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }

    /// The options that [`pool`](Self::pool) connects with: write-ahead mode, and ten seconds of
    /// patience with other writers.
    #[must_use]
    pub fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(self.path())
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(10))
    }

    /// A pool of at most `max` connections.
    pub async fn pool(&self, max: u32) -> SqlitePool {
        SqlitePoolOptions::new()
            .max_connections(max)
            .acquire_timeout(Duration::from_secs(30))
            .connect_with(self.options())
            .await
            .expect("SQLite opens the file")
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test database is kept: {}", self.path().display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}
