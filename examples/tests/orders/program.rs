//! The built examples, and what they say.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

/// An example of this package. Cargo builds them before it runs all tests, into the folder beside
/// the one this program is in; with `--test` it does not, and an old program proves nothing.
pub(crate) fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a test knows where it is");
    let built = this
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/…");
    let path = built.join("examples").join(name);
    assert!(
        is_up_to_date(&path).unwrap_or(false),
        "{} is missing or old: run `cargo build -p idem-examples --examples` first",
        path.display()
    );
    path
}

/// By the list of sources that Cargo writes beside the program.
fn is_up_to_date(program: &Path) -> std::io::Result<bool> {
    let built = program.metadata()?.modified()?;
    let list = std::fs::read_to_string(program.with_extension("d"))?.replace("\\ ", "\0");
    for source in list.split_whitespace().skip(1) {
        let source = source.replace('\0', " ");
        if std::fs::metadata(source)?.modified()? > built {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How a run of `orders` ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) complaints: String,
}

/// Runs `orders` to its end.
pub(crate) async fn orders(args: &[&str]) -> Run {
    let output = command(args).output().await.expect("orders starts");
    Run {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        complaints: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Starts `orders`, to be killed.
pub(crate) fn start_orders(args: &[&str]) -> Child {
    command(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("orders starts")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(example("orders"));
    command.args(args);
    command
}

impl Run {
    /// The number beside a word in the table.
    pub(crate) fn number(&self, word: &str) -> i64 {
        let line = self
            .out
            .lines()
            .find_map(|line| line.trim().strip_prefix(word));
        let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number.unwrap_or_else(|| panic!("no number beside {word:?}\n{self}"))
    }

    #[track_caller]
    pub(crate) fn ended_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, text: &str) -> &Self {
        assert!(self.out.contains(text), "{text:?} is not in\n{self}");
        self
    }

    #[track_caller]
    pub(crate) fn complains(&self, text: &str) -> &Self {
        assert!(self.complaints.contains(text), "{text:?} is not in\n{self}");
        self
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}\n{}\n{}", self.code, self.out, self.complaints)
    }
}
