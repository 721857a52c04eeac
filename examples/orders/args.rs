//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Takes payment callbacks from three providers and books every payment and refund once.
///
/// Without arguments it runs on the callbacks that come with the example, in a SQLite file that is
/// removed at the end.
#[derive(Debug, Parser)]
#[command(name = "orders")]
pub(crate) struct Args {
    /// Callbacks, one JSON object a line.
    pub(crate) file: Option<PathBuf>,

    /// What must come out: totals, counts and every order.
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,

    /// Where to book: `sqlite://path/to/file` (made if it is not there) or `postgres://…`.
    #[arg(long, value_name = "URL")]
    pub(crate) database: Option<String>,

    /// How many callbacks are processed at a time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Args;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn nothing_at_all_is_a_whole_command_line() {
        let args = Args::try_parse_from(["orders"]).unwrap();
        assert!(args.file.is_none() && args.expect.is_none() && args.database.is_none());
    }

    #[test]
    fn nobody_can_process_zero_at_a_time() {
        assert!(Args::try_parse_from(["orders", "--concurrency", "0"]).is_err());
        assert!(Args::try_parse_from(["orders", "--concurrency", "64"]).is_ok());
    }
}
