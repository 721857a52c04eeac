//! The orders example as a program: run, run again, run twice at once, killed and run again, on
//! every database.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: what cannot go on panics, in the test that called it"
)]

mod callbacks;
mod contradictions;
mod crash;
mod lines;
mod money;
mod program;
mod repeats;
mod shop;

/// Each case once for each database, as tests named `sqlite::case` and `postgres::case`.
macro_rules! on_every_database {
    ($($module:ident :: $case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(super::shop::Kind::Sqlite).await })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$module::$case(super::shop::Kind::Postgres).await })+
        }
    };
}

on_every_database!(
    repeats::a_second_run_books_nothing,
    repeats::two_processes_on_one_file_book_once,
    contradictions::the_earlier_notice_is_believed_at_any_concurrency,
    contradictions::a_refund_must_agree_with_its_trade,
    contradictions::a_notice_is_booked_whole_or_not_at_all,
    crash::a_killed_run_is_finished_by_the_next,
    lines::a_bad_line_is_reported_by_its_number_and_passed_over,
    lines::a_wrong_expectation_is_told_apart,
    money::msg_20_amounts_of_two_currencies_are_never_added,
    money::a_sum_that_no_column_holds_is_told_as_such,
    money::a_charge_is_booked_when_it_is_captured,
    money::a_mark_at_the_beginning_loses_no_line,
);
