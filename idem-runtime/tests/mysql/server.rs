//! A private server, and a fresh database on it for each test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use idem_runtime::store::mysql;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection};

/// Name the server to use instead of a private one; its user must be allowed to create databases.
const URLS: [&str; 2] = ["IDEM_TEST_MYSQL_URL", "IDEM_TEST_MARIADB_URL"];

/// A server of our own. It ends, and its files go, when the pipe to its keeper closes: at the latest
/// with this process, however that ends.
pub(crate) struct Server {
    pub(crate) url: String,
    _keeper: Child,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (install, serve) = (find("mariadb-install-db"), find("mariadbd"));
        let started = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = format!("idem-mariadb-{}-{started}-{count}", std::process::id());
        let home = std::env::temp_dir().join(home);
        std::fs::create_dir_all(&home).unwrap();
        let data = format!("--datadir={}", home.join("data").display());
        let user = run_as();

        let installed = Command::new(install)
            .args(["--no-defaults", "--skip-test-db", &data, &user])
            .arg("--auth-root-authentication-method=normal")
            .output()
            .unwrap();
        assert!(
            installed.status.success(),
            "mariadb-install-db: {installed:?}"
        );
        let socket = home.join("socket");
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&home)
            .arg(serve)
            .args(["--no-defaults", "--skip-networking", &data, &user])
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--log-error={}", home.join("log").display()))
            .arg(format!("--tmpdir={}", home.display()))
            .args(["--max-connections=400", "--innodb-buffer-pool-size=64M"])
            .arg("--open-files-limit=8192")
            .args([
                "--innodb-flush-log-at-trx-commit=2",
                "--performance-schema=off",
            ])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(&socket, &home);
        Self {
            url: format!("mysql://root@localhost/?socket={}", socket.display()),
            _keeper: keeper,
        }
    }
}

const KEEPER: &str = r#"trap '' INT TERM HUP; home=$1; shift; "$@" & cat >/dev/null; kill -9 $!; wait $!; rm -rf "$home""#;

fn wait_for(socket: &Path, home: &Path) {
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "mariadbd does not start: {}",
            std::fs::read_to_string(home.join("log")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Root may run a server only as a named user.
fn run_as() -> String {
    let id = Command::new("id").arg("-un").output().unwrap();
    format!("--user={}", String::from_utf8(id.stdout).unwrap().trim())
}

fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/libexec", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!(
                "these tests need a server: set {}, or install MariaDB (`apt-get install \
                 mariadb-server`); there is no `{program}` in PATH",
                URLS[0]
            )
        })
}

/// The server of all tests.
fn url() -> &'static str {
    static SHARED: OnceLock<(String, Option<Server>)> = OnceLock::new();
    let shared = SHARED.get_or_init(|| match named() {
        Some(url) => (url, None),
        None => {
            let server = Server::start(&[]);
            (server.url.clone(), Some(server))
        }
    });
    &shared.0
}

fn named() -> Option<String> {
    let named = URLS.iter().filter_map(|name| std::env::var(name).ok());
    named.into_iter().find(|url| !url.is_empty())
}

/// A database of one test.
pub(crate) struct Database {
    pub(crate) options: MySqlConnectOptions,
    pub(crate) pool: MySqlPool,
}

impl Database {
    /// A fresh one, with our schema and the tables of a business.
    pub(crate) async fn fresh() -> Self {
        Self::fresh_on(url()).await
    }

    pub(crate) async fn fresh_on(url: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "idem_{}_{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let options = MySqlConnectOptions::from_str(url).unwrap();
        let mut conn = MySqlConnection::connect_with(&options).await.unwrap();
        let create = format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name}");
        sqlx::raw_sql(AssertSqlSafe(create))
            .execute(&mut conn)
            .await
            .unwrap();
        conn.close().await.unwrap();
        let db = Self::open(options.database(&name)).await;
        mysql::migrate(&db.pool).await.unwrap();
        let business = "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, \
             no TEXT NOT NULL, cents BIGINT NOT NULL) ENGINE = InnoDB; \
             CREATE TABLE account (id INT PRIMARY KEY, cents BIGINT NOT NULL) ENGINE = InnoDB; \
             INSERT INTO account VALUES (1, 0), (2, 0); \
             CREATE TABLE audit (line VARCHAR(100) NOT NULL) ENGINE = InnoDB";
        sqlx::raw_sql(business).execute(&db.pool).await.unwrap();
        db
    }

    /// The database that a parent process has made.
    pub(crate) async fn of_parent() -> Self {
        let options = MySqlConnectOptions::from_str(&named().unwrap()).unwrap();
        Self::open(options.database(&std::env::var("IDEM_TEST_DATABASE").unwrap())).await
    }

    async fn open(options: MySqlConnectOptions) -> Self {
        let pool = MySqlPoolOptions::new().max_connections(10);
        let pool = pool.connect_with(options.clone()).await.unwrap();
        Self { options, pool }
    }

    /// Another pool, whose sessions begin with `setup`.
    pub(crate) async fn pool(&self, size: u32, setup: &'static str) -> MySqlPool {
        MySqlPoolOptions::new()
            .max_connections(size)
            .after_connect(move |conn, _| {
                Box::pin(async move {
                    if !setup.is_empty() {
                        conn.execute(setup).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(self.options.clone())
            .await
            .unwrap()
    }

    /// This test program again, as a child that finds this database and runs one test alone.
    pub(crate) fn child(&self, test: &str) -> Command {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("IDEM_TEST_CHILD", test)
            .env("IDEM_TEST_DATABASE", self.options.get_database().unwrap())
            .env(URLS[0], url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        child
    }

    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn orders(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM orders").await
    }

    pub(crate) async fn records(&self) -> i64 {
        self.number("SELECT COUNT(*) FROM idem_record").await
    }
}

/// Whether this process is the child that runs `test`.
pub(crate) fn is_child(test: &str) -> bool {
    std::env::var("IDEM_TEST_CHILD").is_ok_and(|child| child == test)
}
