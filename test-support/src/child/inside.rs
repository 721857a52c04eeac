//! The child's side: its role, its arguments, its words.

use std::{future::Future, io::Write};

use tokio::sync::mpsc;

use super::{ARGUMENT, GO, LINED_UP, MARK, ROLE};

/// Runs the role that the parent asked for, then ends the process. Called by [`child_roles!`](crate::child_roles).
pub fn entry<F: Future<Output = ()>>(run: impl FnOnce(Args) -> F) {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let values = (0..)
        .map_while(|n| std::env::var(format!("{ARGUMENT}{n}")).ok())
        .collect();
    let (heard, hear) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            heard.send(line).ok();
        }
        // The parent is gone, and nobody else would end this process.
        std::process::exit(3);
    });
    let args = Args {
        role,
        values,
        hear: tokio::sync::Mutex::new(hear),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for the child");
    runtime.block_on(run(args));
    // What the role left running must not keep the process, nor may the harness print more.
    std::process::exit(0);
}

/// Sends one line to the parent.
pub fn say(message: &str) {
    let mut out = std::io::stdout().lock();
    // The harness leaves its own line open, so the message begins a new one. A parent that is gone
    // is met by the thread that reads from it.
    writeln!(out, "\n{MARK}{}", message.replace('\n', "\\n")).ok();
    out.flush().ok();
}

/// What the parent gave its child.
#[derive(Debug)]
pub struct Args {
    role: String,
    values: Vec<String>,
    hear: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Args {
    /// The role's name.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }

    /// The `n`-th argument, from 0.
    ///
    /// # Panics
    /// When the parent gave fewer.
    #[must_use]
    pub fn get(&self, n: usize) -> &str {
        self.values
            .get(n)
            .unwrap_or_else(|| panic!("{} was given no argument {n}", self.role))
    }

    /// The `n`-th argument as a number.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn number(&self, n: usize) -> u64 {
        self.get(n).parse().expect("the argument is a number")
    }

    /// Waits for a line that the parent [tells](super::Child::tell).
    pub async fn hear(&self) -> String {
        match self.hear.lock().await.recv().await {
            Some(line) => line,
            // The reading thread ends the process.
            None => std::future::pending().await,
        }
    }

    /// Tells the parent that everything is prepared, and waits until all children are.
    pub async fn line_up(&self) {
        say(LINED_UP);
        assert_eq!(self.hear().await, GO);
    }
}
