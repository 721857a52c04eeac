//! One server process.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::wire::{Reply, ask};
use crate::unique_name;

const PATIENCE: Duration = Duration::from_secs(20);

/// A private server on a free loopback port, with its data in a temporary folder. It ends, and its
/// data go, when this is dropped or the test process ends, however that ends.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    folder: PathBuf,
    settings: Vec<String>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: Child,
    /// Kills the server once this process is gone and its end of the pipe is closed.
    watcher: Child,
}

impl RedisServer {
    /// Starts one, with settings as on the command line (`"--appendonly", "yes"`). Unless they say
    /// otherwise it evicts nothing and writes nothing to the disk.
    ///
    /// # Panics
    /// When `redis-server` cannot be started.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        for _ in 0..20 {
            let folder = std::env::temp_dir().join(unique_name());
            std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
            let mut server = Self {
                port: free_port(),
                folder,
                settings: settings.iter().map(|&s| s.to_owned()).collect(),
                running: None,
            };
            if server.run() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// Its port on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a command.
    ///
    /// # Panics
    /// When the server does not answer, or answers with an error.
    pub fn command(&self, command: &[&str]) -> Reply {
        match self.try_command(command) {
            Reply::Error(error) => panic!("{command:?}: {error}"),
            reply => reply,
        }
    }

    /// The same where an error is an answer too.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn try_command(&self, command: &[&str]) -> Reply {
        let parts: Vec<&[u8]> = command.iter().map(|part| part.as_bytes()).collect();
        ask(self.port, &parts).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Kills it at once (`SIGKILL`).
    pub fn kill9(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.end();
        }
    }

    /// Starts it again after [`kill9`](Self::kill9), on the same port with the same data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        self.kill9();
        let begun = Instant::now();
        while !self.run() {
            assert!(
                begun.elapsed() < PATIENCE,
                "redis-server does not start again"
            );
        }
    }

    /// Stops it where it is (`SIGSTOP`).
    pub fn sigstop(&self) {
        self.signal("STOP");
    }

    /// Lets a stopped server go on.
    pub fn sigcont(&self) {
        self.signal("CONT");
    }

    /// Waits until a command's answer is as wanted.
    ///
    /// # Panics
    /// When it does not become so.
    pub fn wait_until(&self, command: &[&str], wanted: impl Fn(&Reply) -> bool) {
        let begun = Instant::now();
        loop {
            let reply = self.try_command(command);
            if wanted(&reply) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{command:?} still answers {reply:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let running = self.running.as_ref().expect("the server is running");
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", running.process.id())])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "cannot send SIG{name}"
        );
    }

    /// Whether it came up: another process may have taken the port.
    fn run(&mut self) -> bool {
        let mut process = Command::new("redis-server")
            .arg("--port")
            .arg(self.port.to_string())
            .arg("--dir")
            .arg(&self.folder)
            .args(["--bind", "127.0.0.1", "--save", ""])
            .args(["--maxmemory-policy", "noeviction"])
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "this test needs the program `redis-server` (Debian: apt-get install \
                     redis-server), which cannot be started: {error}"
                )
            });
        let watch = format!(
            "cat >/dev/null; kill -9 {}; rm -rf '{}'",
            process.id(),
            self.folder.display()
        );
        let watcher = Command::new("sh")
            .args(["-c", &watch])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let begun = Instant::now();
        loop {
            if matches!(process.try_wait(), Ok(Some(_))) || begun.elapsed() > PATIENCE {
                Running { process, watcher }.end();
                return false;
            }
            if matches!(ask(self.port, &[b"PING"]), Ok(Reply::Bytes(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.running = Some(Running { process, watcher });
        true
    }
}

impl Running {
    fn end(&mut self) {
        // The watcher first: later the number could be another process's.
        self.watcher.kill().ok();
        self.watcher.wait().ok();
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill9();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A port that is free together with the one that a cluster's nodes talk over, both below the range
/// from which the kernel gives ports to clients.
fn free_port() -> u16 {
    loop {
        let mut random = [0; 2];
        getrandom::fill(&mut random).expect("the system gives random bytes");
        let port = 15_000 + u16::from_ne_bytes(random) % 7_000;
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + 10_000) {
            return port;
        }
    }
}
