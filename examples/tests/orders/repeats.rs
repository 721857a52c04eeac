//! However often a callback comes, in one run or in many.

use crate::callbacks::{Callbacks, Folder};
use crate::program::orders;
use crate::shop::Kind;

pub(crate) async fn a_second_run_books_nothing(kind: Kind) {
    for (seed, concurrency) in [(1, "1"), (2, "64"), (3, "64")] {
        let callbacks = Callbacks::of_seed(seed, 120).await;
        let shop = kind.shop().await;
        let url = shop.url();
        let args = callbacks.args(&url, concurrency);

        let first = orders(&args).await;
        first.ended_with(0).says("expectation    met");
        shop.has(&callbacks.expected).await;
        assert_eq!(shop.entries().await, callbacks.entries());
        let (booked, replayed) = (first.number("first runs"), first.number("replays"));
        assert_eq!(booked, callbacks.entries(), "{first}");
        assert!(replayed > 0, "{first}");

        let second = orders(&args).await;
        second.ended_with(0).says("expectation    met");
        shop.has(&callbacks.expected).await;
        assert_eq!(second.number("first runs"), 0, "{second}");
        assert_eq!(second.number("replays"), booked + replayed, "{second}");
        assert_eq!(
            second.number("refused"),
            first.number("refused"),
            "{second}"
        );
    }
}

pub(crate) async fn two_processes_on_one_file_book_once(kind: Kind) {
    let callbacks = Callbacks::of_seed(4, 120).await;
    let shop = kind.shop().await;
    let url = shop.url();
    let args = callbacks.args(&url, "16");
    let (one, other) = tokio::join!(orders(&args), orders(&args));
    // Each has taken every line when it ends, so each finds complete books.
    one.ended_with(0).says("expectation    met");
    other.ended_with(0).says("expectation    met");
    let booked = one.number("first runs") + other.number("first runs");
    assert_eq!(booked, callbacks.entries(), "{one}\n{other}");
    shop.has(&callbacks.expected).await;
}

#[tokio::test]
async fn without_arguments_it_judges_itself_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let run = tokio::process::Command::new(crate::program::example("orders"))
        .env("TMPDIR", folder.path())
        .output()
        .await
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let out = String::from_utf8(run.stdout).unwrap();
    assert!(out.contains("expectation    met"), "{out}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
