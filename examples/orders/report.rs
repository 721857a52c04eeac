//! The table at the end.

use std::fmt;
use std::time::Duration;

use crate::audit::Books;
use crate::expected::Expected;
use crate::money::Sum;
use crate::run::Tally;

/// Differences that are shown one by one.
const SHOWN: usize = 20;

/// What a run came to.
pub(crate) struct Report {
    pub(crate) tally: Tally,
    pub(crate) took: Duration,
    pub(crate) concurrency: u16,
    pub(crate) books: Books,
    pub(crate) contradictions: Vec<String>,
    /// How many orders were expected, and every difference; `None` if nothing was.
    pub(crate) expected: Option<(usize, Vec<String>)>,
}

impl Report {
    pub(crate) fn new(
        tally: Tally,
        took: Duration,
        concurrency: u16,
        books: Books,
        expected: Option<&Expected>,
    ) -> Self {
        let contradictions = books.contradictions();
        let expected = expected.map(|expected| {
            let differences = expected.differences(&tally, &books);
            (expected.orders(), differences)
        });
        Self {
            tally,
            took,
            concurrency,
            books,
            contradictions,
            expected,
        }
    }

    /// Every line accounted for, the books in order, and everything as expected.
    pub(crate) fn is_good(&self) -> bool {
        let as_expected = self
            .expected
            .as_ref()
            .is_none_or(|(_, found)| found.is_empty());
        self.tally.failed == 0 && self.contradictions.is_empty() && as_expected
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            lines,
            bad_lines,
            booked,
            replayed,
            mismatches,
            failed,
        } = self.tally;
        let seconds = self.took.as_secs_f64();
        let rate = lines as f64 / seconds.max(1e-9);
        let at_a_time = self.concurrency;
        writeln!(
            f,
            "callbacks      {lines:>10}   in {seconds:.2} s, {rate:.0}/s, {at_a_time} at a time"
        )?;
        writeln!(f, "  first runs   {booked:>10}")?;
        writeln!(f, "  replays      {replayed:>10}")?;
        writeln!(
            f,
            "  refused      {mismatches:>10}   a known trade with other contents"
        )?;
        if failed > 0 {
            writeln!(f, "  failed       {failed:>10}   see above")?;
        }
        writeln!(f, "  bad lines    {bad_lines:>10}")?;
        writeln!(f, "ledger            entries                 amount")?;
        if self.books.ledger.is_empty() {
            writeln!(f, "  none                  0")?;
        }
        for (currency, totals) in self.books.totals() {
            let (paid, refunded) = (Sum(totals.paid, currency), Sum(totals.refunded, currency));
            let left = Sum(totals.paid - totals.refunded, currency);
            writeln!(f, "  paid         {:>10} {paid:>22}", totals.payments)?;
            writeln!(f, "  refunded     {:>10} {refunded:>22}", totals.refunds)?;
            writeln!(f, "  balance                 {left:>22}")?;
        }
        write!(f, "books          ")?;
        if self.contradictions.is_empty() {
            let (orders, merchants) = (self.books.orders.len(), self.books.balances.len());
            writeln!(
                f,
                "{orders} orders and {merchants} balances agree with the ledger; nothing is booked twice"
            )?;
        } else {
            list(f, "do not agree", &self.contradictions)?;
        }
        write!(f, "expectation    ")?;
        match &self.expected {
            None => writeln!(f, "none given"),
            Some((orders, found)) if found.is_empty() => {
                writeln!(f, "met: 5 counts, 2 totals, {orders} orders")
            }
            Some((_, found)) => list(f, "not met", found),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, verdict: &str, found: &[String]) -> fmt::Result {
    writeln!(f, "{verdict}, {} differences", found.len())?;
    for difference in found.iter().take(SHOWN) {
        writeln!(f, "  {difference}")?;
    }
    match found.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(tally: Tally, found: Vec<String>) -> Report {
        let mut report = Report::new(tally, Duration::from_secs(2), 8, Books::default(), None);
        report.expected = Some((3, found));
        report
    }

    #[test]
    fn a_good_run_says_so() {
        let tally = Tally {
            lines: 10,
            booked: 4,
            replayed: 6,
            ..Tally::default()
        };
        let report = report(tally, Vec::new());
        assert!(report.is_good());
        let text = report.to_string();
        assert!(text.contains("in 2.00 s, 5/s, 8 at a time"), "{text}");
        assert!(text.contains("met: 5 counts, 2 totals, 3 orders"), "{text}");
        assert!(!text.contains("failed"), "{text}");
    }

    #[test]
    fn differences_are_shown_up_to_a_number() {
        let found = (0..30).map(|n| format!("difference {n}")).collect();
        let report = report(Tally::default(), found);
        assert!(!report.is_good());
        let text = report.to_string();
        assert!(text.contains("not met, 30 differences"), "{text}");
        assert!(text.contains("difference 19\n  and 10 more"), "{text}");
    }

    #[test]
    fn a_line_that_failed_spoils_the_run() {
        let tally = Tally {
            failed: 1,
            ..Tally::default()
        };
        let report = report(tally, Vec::new());
        assert!(!report.is_good());
        assert!(report.to_string().contains("failed"));
    }
}
