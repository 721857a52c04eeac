//! The parent's side: a process that runs, what it said, and the signals it gets.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child as Process, ChildStdin, Command, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use super::MARK;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a child has printed.
#[derive(Debug, Default)]
struct Record {
    messages: Vec<String>,
    output: Vec<String>,
    closed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

fn read_into(
    record: Arc<watch::Sender<Record>>,
    from: impl std::io::Read + Send + 'static,
    stream: Stream,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            record.send_modify(|record| match line.strip_prefix(MARK) {
                Some(message) if stream == Stream::Out => record.messages.push(message.to_owned()),
                _ if line.is_empty() => {}
                _ => record.output.push(line),
            });
        }
        record.send_modify(|record| record.closed += 1);
    });
}

/// A running child. Dropping it kills the process.
#[derive(Debug)]
pub struct Child {
    role: String,
    process: Mutex<Process>,
    input: Option<ChildStdin>,
    record: Arc<watch::Sender<Record>>,
    /// How many messages [`next_message`](Self::next_message) has given out.
    read: usize,
}

impl Child {
    /// Takes over a process whose three streams are piped.
    pub(super) fn new(role: &str, mut process: Process) -> Self {
        let record = Arc::new(watch::Sender::new(Record::default()));
        let out = process.stdout.take().expect("a piped output");
        let err = process.stderr.take().expect("a piped output");
        read_into(Arc::clone(&record), out, Stream::Out);
        read_into(Arc::clone(&record), err, Stream::Err);
        let input = process.stdin.take();
        Self {
            role: role.to_owned(),
            process: Mutex::new(process),
            input,
            record,
            read: 0,
        }
    }

    /// The process's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process().id()
    }

    /// Sends the child one line, for [`Args::hear`](super::Args::hear).
    ///
    /// # Panics
    /// When the child no longer listens.
    pub fn tell(&mut self, line: &str) {
        let input = self
            .input
            .as_mut()
            .expect("a child that is told something is running");
        writeln!(input, "{line}").unwrap_or_else(|error| self.fail(&error.to_string()));
    }

    /// The next message that was not waited for yet.
    ///
    /// # Panics
    /// When none comes within a minute, or the child ends without one.
    pub async fn next_message(&mut self) -> String {
        let at = self.read;
        self.until(&format!("message {at}"), |record| {
            record.messages.len() > at
        })
        .await;
        self.read += 1;
        self.record.borrow().messages[at].clone()
    }

    /// Waits for a message that is just this, and skips others.
    ///
    /// # Panics
    /// When it does not come within a minute, or the child ends without it.
    pub async fn wait_for(&mut self, message: &str) {
        let from = self.read;
        let find = |record: &Record| {
            record.messages[from..]
                .iter()
                .position(|m| m == message)
                .map(|at| from + at + 1)
        };
        self.until(&format!("`{message}`"), |record| find(record).is_some())
            .await;
        let after = find(&self.record.borrow());
        self.read = after.unwrap_or(from);
    }

    /// All messages so far.
    #[must_use]
    pub fn messages(&self) -> Vec<String> {
        self.record.borrow().messages.clone()
    }

    /// What it printed besides, a panic's message for example.
    #[must_use]
    pub fn output(&self) -> String {
        self.record.borrow().output.join("\n")
    }

    /// Kills the process at once (`SIGKILL`) and waits until it is gone.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill9(&self) {
        let mut process = self.process();
        process.kill().expect("a child can be killed");
        process.wait().expect("a killed child ends");
    }

    /// Stops the process where it is (`SIGSTOP`): to others it looks like a long pause.
    pub fn sigstop(&self) {
        self.signal("STOP");
    }

    /// Lets a stopped process go on.
    pub fn sigcont(&self) {
        self.signal("CONT");
    }

    /// Waits until the child has ended, well or not.
    ///
    /// # Panics
    /// When that takes longer than a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut record = self.record.subscribe();
        let closed = record.wait_for(|record| record.closed == 2);
        if tokio::time::timeout(PATIENCE, closed).await.is_err() {
            self.fail("it does not end");
        }
        // Both outputs are closed, so this does not block for long.
        self.process().wait().expect("a child's status can be read")
    }

    /// Waits until the child has ended well and gives all its messages.
    ///
    /// # Panics
    /// When it failed, or does not end within a minute.
    pub async fn finish(mut self) -> Vec<String> {
        let status = self.ended().await;
        if !status.success() {
            self.fail(&status.to_string());
        }
        self.messages()
    }

    async fn until(&self, what: &str, mut done: impl FnMut(&Record) -> bool) {
        let mut record = self.record.subscribe();
        let waiting = record.wait_for(|record| done(record) || record.closed == 2);
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            self.fail(&format!("{what} does not come"));
        }
        if !done(&self.record.borrow()) {
            self.fail(&format!("it ended without {what}"));
        }
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`: the program of that name need not be installed.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.id())])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "cannot send SIG{name}"
        );
    }

    fn fail(&self, why: &str) -> ! {
        let record = self.record.borrow();
        let mut report = format!("the child `{}` failed: {why}", self.role);
        // Indented, so that the harness's lines in it are not taken for those of this run.
        for line in record.messages.iter().chain(&record.output) {
            report.push_str("\n    | ");
            report.push_str(line);
        }
        drop(record);
        panic!("{report}");
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut process = self.process();
        process.kill().ok();
        process.wait().ok();
    }
}
