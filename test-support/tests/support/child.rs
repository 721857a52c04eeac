use std::time::Duration;

use idem_test_support::{
    Postgres,
    child::{Args, say},
    child_roles, postgres,
};

child_roles!(counts, echoes, hangs_in_a_transaction, panics, ticks);

async fn echoes(args: Args) {
    say(&format!(
        "{} {}",
        args.get(0),
        std::env::var("COLOUR").unwrap()
    ));
    let heard = args.hear().await;
    say(&heard);
}

async fn panics(_: Args) {
    say("before");
    panic!("on purpose\ntest result: ok. 1000 passed; 0 failed;");
}

async fn ticks(_: Args) {
    for n in 0.. {
        say(&n.to_string());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn hangs_in_a_transaction(args: Args) {
    let pool = postgres::pool(args.get(0), 1).await;
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO t VALUES (1)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    say("in the transaction");
    std::future::pending::<()>().await;
}

async fn counts(args: Args) {
    let pool = postgres::pool(args.get(0), 2).await;
    args.line_up().await;
    for n in 0..args.number(1) {
        sqlx::query("UPDATE t SET n = n + 1")
            .execute(&pool)
            .await
            .unwrap();
        say(&n.to_string());
    }
}

#[tokio::test]
async fn a_child_gets_arguments_and_talks() {
    let mut child = child("echoes")
        .arg("an argument")
        .env("COLOUR", "red")
        .spawn();
    assert_eq!(child.next_message().await, "an argument red");
    child.tell("hello");
    assert_eq!(child.finish().await, ["an argument red", "hello"]);
}

#[tokio::test]
#[should_panic(expected = "    | test result: ok. 1000 passed")]
async fn a_failed_child_fails_its_parent_and_its_output_is_shown_indented() {
    child("panics").spawn().finish().await;
}

#[tokio::test]
#[should_panic(expected = "it ended without `never said`")]
async fn a_message_that_cannot_come_any_more_is_not_waited_for() {
    child("panics").spawn().wait_for("never said").await;
}

#[tokio::test]
async fn a_killed_child_leaves_nothing_of_its_transaction() {
    let database = Postgres::database().await;
    database.execute("CREATE TABLE t (n int)").await;
    let mut child = child("hangs_in_a_transaction").arg(database.url()).spawn();
    child.wait_for("in the transaction").await;
    assert_eq!(database.idle_in_transaction().await, 1);
    child.kill9();
    assert!(!child.ended().await.success());
    database.quiet().await;
    let pool = database.pool(1).await;
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM t")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_stopped_child_goes_on_later() {
    let mut child = child("ticks").spawn();
    child.wait_for("3").await;
    child.sigstop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stopped = child.messages().len();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(child.messages().len(), stopped);
    child.sigcont();
    child.wait_for(&(stopped + 2).to_string()).await;
}

#[tokio::test]
async fn many_children_run_together() {
    let database = Postgres::database().await;
    database
        .execute("CREATE TABLE t (n bigint); INSERT INTO t VALUES (0)")
        .await;
    let said = child("counts")
        .arg(database.url())
        .arg(20)
        .run_many(3)
        .await;
    assert_eq!(
        said,
        vec![(0..20).map(|n: u64| n.to_string()).collect::<Vec<_>>(); 3]
    );
    let pool = database.pool(1).await;
    let sum: i64 = sqlx::query_scalar("SELECT n FROM t")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(sum, 60);
}
