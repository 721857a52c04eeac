//! This test program again, as a child process: to kill, to stop, or to run many at once.
//!
//! A test file names its roles once; each is an `async fn(Args)` that runs in the child only.
//!
//! ```ignore
//! idem_test_support::child_roles!(worker, dies_in_body);
//!
//! async fn dies_in_body(args: Args) {
//!     let pool = postgres::pool(args.get(0), 2).await;
//!     call(&pool, async { say("in the body"); std::future::pending().await }).await;
//! }
//!
//! #[tokio::test]
//! async fn a_killed_body_leaves_nothing() {
//!     let database = Postgres::database().await;
//!     let mut child = child("dies_in_body").arg(database.url()).spawn();
//!     child.wait_for("in the body").await;
//!     child.kill9();
//! }
//!
//! async fn worker(args: Args) {
//!     args.line_up().await; // all processes start together
//!     for n in 0..200 { say(&call(n).await.to_string()); }
//! }
//!
//! #[tokio::test]
//! async fn five_processes() {
//!     for messages in child("worker").arg("…").run_many(5).await { /* one Vec<String> each */ }
//! }
//! ```

mod inside;
mod process;

use std::process::{Command, Stdio};

pub use self::{
    inside::{Args, entry, say},
    process::Child,
};

const ROLE: &str = "IDEM_CHILD";
const ARGUMENT: &str = "IDEM_CHILD_ARG_";
/// Marks a message among what the test harness prints.
const MARK: &str = "@child ";
const LINED_UP: &str = "lined up";
const GO: &str = "go";

/// Names the roles that this module's tests can start as child processes, with [`child`](Launch)
/// as the function that starts one. Once in a module.
#[macro_export]
macro_rules! child_roles {
    ($($role:ident),+ $(,)?) => {
        // In the parent this test does nothing; in a child it is the only one that runs.
        #[test]
        fn child_entry() {
            $crate::child::entry(async |args| {
                let role = args.role().to_owned();
                match role.as_str() {
                    $(stringify!($role) => $role(args).await,)+
                    other => panic!("no role is called {other}"),
                }
            });
        }

        fn child(role: &str) -> $crate::child::Launch {
            assert!([$(stringify!($role)),+].contains(&role), "no role is called {role}");
            $crate::child::Launch::new(module_path!(), role)
        }
    };
}

/// A child that is not started yet.
#[derive(Clone, Debug)]
#[must_use = "a child runs after `spawn` or `run_many`"]
pub struct Launch {
    entry: String,
    role: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Launch {
    /// For [`child_roles!`]: the role of the test program's entry in the given module.
    pub fn new(module: &str, role: &str) -> Self {
        // The harness names tests without the crate.
        let entry = match module.split_once("::") {
            Some((_, inner)) => format!("{inner}::child_entry"),
            None => "child_entry".to_owned(),
        };
        Self {
            entry,
            role: role.to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, value: impl ToString) -> Self {
        self.arguments.push(value.to_string());
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts the process.
    ///
    /// # Panics
    /// When the test program cannot be started again.
    #[must_use]
    pub fn spawn(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("the test program's path"));
        command
            .args([&self.entry, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, &self.role)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(
                self.arguments
                    .iter()
                    .enumerate()
                    .map(|(n, value)| (format!("{ARGUMENT}{n}"), value)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = command
            .spawn()
            .expect("the test program can be started again");
        Child::new(&self.role, process)
    }

    /// Starts `count` processes that [line up](Args::line_up), lets them go together, and gives
    /// the messages of each once all have ended well.
    ///
    /// # Panics
    /// When one of them fails.
    pub async fn run_many(&self, count: usize) -> Vec<Vec<String>> {
        let mut children: Vec<_> = (0..count).map(|_| self.spawn()).collect();
        for child in &mut children {
            child.wait_for(LINED_UP).await;
        }
        for child in &mut children {
            child.tell(GO);
        }
        let mut messages = Vec::with_capacity(count);
        for child in children {
            let mut said = child.finish().await;
            said.retain(|message| message != LINED_UP);
            messages.push(said);
        }
        messages
    }
}
