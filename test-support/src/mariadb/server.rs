//! A server of the test's own.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::unique_name;

const PATIENCE: Duration = Duration::from_secs(60);

/// A private server on a socket, with its data in a temporary folder; what it has committed is on the
/// disk. It ends, and its data go, when this is dropped or the test process ends, however that ends.
#[derive(Debug)]
pub struct MariaDbServer {
    home: PathBuf,
    keeper: Child,
    said: BufReader<ChildStdout>,
}

/// Obeys a line each, and clears up when there are no more.
const KEEPER: &str = r#"trap '' INT TERM HUP; home=$1; shift; "$@" >/dev/null &
while read -r order; do
    case $order in
    stop) kill -9 $!; wait $!; echo stopped ;;
    start) "$@" >/dev/null & ;;
    esac
done
kill -9 $!; wait $!; rm -rf "$home""#;

impl MariaDbServer {
    /// Starts one with these options besides.
    ///
    /// # Panics
    /// When MariaDB is not installed, or does not start.
    #[must_use]
    pub fn start(options: &[&str]) -> Self {
        let home = std::env::temp_dir().join(unique_name());
        std::fs::create_dir(&home).expect("the temporary folder can be written");
        let data = format!("--datadir={}", home.join("data").display());
        let user = format!("--user={}", this_user());
        let installed = Command::new(find("mariadb-install-db"))
            .args(["--no-defaults", "--skip-test-db", &data, &user])
            .arg("--auth-root-authentication-method=normal")
            .output()
            .expect("mariadb-install-db can be run");
        assert!(
            installed.status.success(),
            "mariadb-install-db: {installed:?}"
        );
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&home)
            .arg(find("mariadbd"))
            .args(["--no-defaults", "--skip-networking", &data, &user])
            .arg(format!("--socket={}", home.join("socket").display()))
            .arg(format!("--log-error={}", home.join("log").display()))
            .arg(format!("--tmpdir={}", home.join("data").display()))
            .args(["--innodb-buffer-pool-size=32M", "--performance-schema=off"])
            .arg("--innodb-flush-log-at-trx-commit=1")
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        let said = BufReader::new(keeper.stdout.take().expect("the keeper's output is piped"));
        let server = Self { home, keeper, said };
        server.wait();
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mysql://root@localhost/?socket={}", self.socket().display())
    }

    /// Kills it at once (`SIGKILL`).
    ///
    /// # Panics
    /// When its keeper is gone.
    pub fn kill9(&mut self) {
        self.order("stop");
        let mut line = String::new();
        self.said
            .read_line(&mut line)
            .expect("the keeper answers when the server is gone");
        assert_eq!(line.trim(), "stopped");
    }

    /// Starts it again after [`kill9`](Self::kill9), with the same data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.order("start");
        self.wait();
    }

    fn order(&mut self, order: &str) {
        let keeper = self.keeper.stdin.as_mut().expect("the keeper listens");
        writeln!(keeper, "{order}").expect("the keeper listens");
    }

    fn socket(&self) -> PathBuf {
        self.home.join("socket")
    }

    fn wait(&self) {
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(
                begun.elapsed() < PATIENCE,
                "mariadbd does not start: {}",
                log(&self.home)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn log(home: &Path) -> String {
    std::fs::read_to_string(home.join("log")).unwrap_or_default()
}

impl Drop for MariaDbServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().ok();
    }
}

/// Root may run a server only as a named user.
fn this_user() -> String {
    let id = Command::new("id").arg("-un").output().expect("`id` tells");
    String::from_utf8_lossy(&id.stdout).trim().to_owned()
}

fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/libexec", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("this test starts a server: install MariaDB (`apt-get install mariadb-server`)")
        })
}
