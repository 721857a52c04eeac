//! How far a long file has been read, where somebody watches.

use std::io::Read;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A shorter file is done before a bar is of use.
const LONG: u64 = 1 << 20;

const STYLE: &str = "{bytes:>10} of {total_bytes} {wide_bar} {eta:>5} left";

/// A bar on the error stream, which shows nothing unless that is a terminal.
#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Of a file with so many bytes.
    pub(crate) fn of(bytes: u64) -> Self {
        if bytes < LONG {
            return Self::none();
        }
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(STYLE) {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(crate) fn none() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Counts what is read.
    pub(crate) fn over<R: Read>(&self, input: R) -> impl Read + use<R> {
        self.0.wrap_read(input)
    }

    /// A line on the error stream, above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}
