use std::time::{Duration, Instant};

use idem_test_support::{
    Postgres, Proxy, TestDatabase,
    proxy::{Count, Direction, Fault, Statement, Wire},
};
use sqlx::PgPool;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

async fn database() -> (TestDatabase, PgPool, Proxy) {
    let database = Postgres::database().await;
    database.execute("CREATE TABLE t (n int)").await;
    let direct = database.pool(2).await;
    let proxy = database.proxy();
    (database, direct, proxy)
}

async fn insert(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO t VALUES ($1)")
        .bind(1)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

async fn rows(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM t")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_statements_and_connections_are_told() {
    let (database, _, proxy) = database().await;
    // A connection comes back to its pool a moment after its transaction, so that a pool of more
    // than one may make another meanwhile.
    let pool = database.pool_through(&proxy, 1);
    assert_eq!(proxy.accepted(), 0);
    insert(&pool).await.unwrap();
    proxy.clear_log();
    insert(&pool).await.unwrap();
    assert_eq!(
        proxy.statements(),
        ["BEGIN", "INSERT INTO t VALUES ($1)", "COMMIT"]
    );
    assert!(
        proxy.prepared().is_empty(),
        "the statement is prepared once in a connection"
    );
    assert_eq!(
        proxy.executed()[1],
        Statement {
            connection: 1,
            text: "INSERT INTO t VALUES ($1)".into(),
            prepared: true
        }
    );
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
}

#[tokio::test]
async fn the_answer_of_a_commit_is_lost() {
    let (database, direct, proxy) = database().await;
    let pool = database.pool_through(&proxy, 1);
    let lost = proxy.on("COMMIT", Fault::CutAnswer);
    insert(&pool).await.unwrap_err();
    assert!(lost.fired());
    assert_eq!(rows(&direct).await, 1);
    insert(&pool).await.unwrap();
    assert_eq!(rows(&direct).await, 2);
}

#[tokio::test]
async fn a_commit_never_arrives() {
    let (database, direct, proxy) = database().await;
    let pool = database.pool_through(&proxy, 1);
    let cut = proxy.on_nth("COMMIT", 2, Fault::CutBefore);
    insert(&pool).await.unwrap();
    assert!(!cut.fired());
    insert(&pool).await.unwrap_err();
    assert!(cut.fired());
    database.quiet().await;
    assert_eq!(rows(&direct).await, 1);
}

#[tokio::test]
async fn an_answer_is_held_until_it_is_released() {
    let (database, direct, proxy) = database().await;
    let pool = database.pool_through(&proxy, 1);
    let held = proxy.on("COMMIT", Fault::HoldAnswer);
    let call = tokio::spawn(async move { insert(&pool).await });
    held.wait().await;
    assert_eq!(rows(&direct).await, 1);
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!call.is_finished());
    held.release();
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_begin_is_held_before_the_server_gets_it() {
    let (database, direct, proxy) = database().await;
    let pool = database.pool_through(&proxy, 1);
    let held = proxy.on("BEGIN", Fault::HoldBefore);
    let call = tokio::spawn(async move { insert(&pool).await });
    held.wait().await;
    assert_eq!(database.idle_in_transaction().await, 0);
    proxy.heal();
    call.await.unwrap().unwrap();
    assert_eq!(rows(&direct).await, 1);
}

#[tokio::test]
async fn the_connection_is_cut_after_every_message() {
    let (database, direct, proxy) = database().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for frames in 0.. {
            let pool = database.pool_through(&proxy, 1);
            let before = rows(&direct).await;
            let cut = proxy.cut_after(direction, Count::Frames(frames));
            let answer = insert(&pool).await;
            database.quiet().await;
            let inserted = rows(&direct).await - before;
            if answer.is_ok() {
                assert_eq!(inserted, 1);
                if !cut.fired() {
                    assert!(frames > 8, "a call takes more than {frames} messages");
                    break;
                }
            } else {
                assert!(cut.fired());
            }
        }
        proxy.heal();
    }
}

#[tokio::test]
async fn a_partition_leaves_the_servers_session() {
    let (database, direct, proxy) = database().await;
    let pool = database.pool_through(&proxy, 1);
    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO t VALUES (1)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    proxy.cut_clients();
    sqlx::query("INSERT INTO t VALUES (2)")
        .execute(&mut *transaction)
        .await
        .unwrap_err();
    assert_eq!(database.idle_in_transaction().await, 1);
    proxy.cut_all();
    database.quiet().await;
    assert_eq!(rows(&direct).await, 0);
    assert_eq!(proxy.open(), 0);
}

#[tokio::test]
async fn a_proxy_delays_holds_and_refuses() {
    let (database, _, proxy) = database().await;
    let pool = database.pool_through(&proxy, 1);
    insert(&pool).await.unwrap();

    proxy.delay(Direction::ToClient, Duration::from_millis(40));
    let begin = Instant::now();
    assert_eq!(rows(&pool).await, 1);
    assert!(begin.elapsed() >= Duration::from_millis(40));
    proxy.heal();

    proxy.hold(Direction::ToServer);
    let call = tokio::spawn({
        let pool = pool.clone();
        async move { rows(&pool).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!call.is_finished());
    proxy.resume(Direction::ToServer);
    assert_eq!(call.await.unwrap(), 1);

    proxy.refuse(true);
    proxy.cut_all();
    let mut refused = TcpStream::connect(proxy.addr()).await.unwrap();
    assert!(matches!(refused.read(&mut [0; 1]).await, Ok(0) | Err(_)));
}

/// A server that answers each byte with itself.
async fn echo() -> Proxy {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    Proxy::start(addr, Wire::Raw)
}

#[tokio::test]
async fn raw_bytes_are_matched_across_reads() {
    let proxy = echo().await;
    let cut = proxy.on_nth("SET", 2, Fault::CutBefore);
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    let mut answer = [0; 3];
    for piece in ["S", "E", "T", "SE"] {
        stream.write_all(piece.as_bytes()).await.unwrap();
        stream.read_exact(&mut answer[..piece.len()]).await.unwrap();
    }
    assert!(!cut.fired());
    stream.write_all(b"T").await.unwrap();
    assert!(matches!(stream.read(&mut answer).await, Ok(0) | Err(_)));
    assert!(cut.fired());
}

#[tokio::test]
async fn raw_bytes_are_cut_in_the_middle() {
    let proxy = echo().await;
    let cut = proxy.cut_after(Direction::ToClient, Count::Bytes(5));
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    stream.write_all(b"abcdefgh").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    assert_eq!(answer, b"abcde");
    assert!(cut.fired());
}
