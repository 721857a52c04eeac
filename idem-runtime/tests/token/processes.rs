//! Several processes.

use idem_runtime::token::{TokenDialect, TokenTable};
use idem_test_support::child::{Args, say};
use idem_test_support::{MariaDb, Postgres, Sqlite};
use sqlx::Pool;

use crate::world::{HOUR, Tokens, reason};

idem_test_support::child_roles!(consumes, dies);

fn kind(name: &str) -> Tokens {
    if name == "signed" {
        Tokens::signed()
    } else {
        Tokens::stored()
    }
}

/// Arguments: URL, kind, and the tokens.
async fn consumes(args: Args) {
    if args.get(0).starts_with("sqlite") {
        let options: sqlx::sqlite::SqliteConnectOptions = args.get(0).parse().unwrap();
        let options = options.busy_timeout(std::time::Duration::from_secs(20));
        consume_all(sqlx::SqlitePool::connect_with(options).await.unwrap(), args).await;
    } else if args.get(0).starts_with("mysql") {
        let pool = sqlx::MySqlPool::connect(args.get(0)).await.unwrap();
        consume_all(pool, args).await;
    } else {
        consume_all(sqlx::PgPool::connect(args.get(0)).await.unwrap(), args).await;
    }
}

async fn consume_all<D: TokenDialect>(pool: Pool<D>, args: Args) {
    let tokens = kind(args.get(1));
    let list: Vec<String> = args.get(2).split(' ').map(str::to_owned).collect();
    args.line_up().await;
    let tasks = list.into_iter().map(|token| {
        let (pool, tokens) = (pool.clone(), tokens.clone());
        tokio::spawn(async move {
            let refused = reason(tokens.spend(&pool, &token).await);
            refused.is_none().then_some(token)
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        if let Some(token) = task.await.unwrap() {
            say(&token);
        }
    }
}

async fn each_token_is_consumed_once<D: TokenDialect>(pool: &Pool<D>, url: &str) {
    TokenTable::default().migrate(pool).await.unwrap();
    for name in ["signed", "stored"] {
        let mut issued = Vec::new();
        for _ in 0..30 {
            issued.push(kind(name).issue(pool, HOUR).await.into_string());
        }
        let child = child("consumes").arg(url).arg(name).arg(issued.join(" "));
        let mut consumed: Vec<String> = child.run_many(3).await.into_iter().flatten().collect();
        consumed.sort();
        issued.sort();
        assert_eq!(consumed, issued, "{name}");
    }
}

/// Arguments: URL, kind, and a token.
async fn dies(args: Args) {
    if args.get(0).starts_with("sqlite") {
        let pool = sqlx::SqlitePool::connect(args.get(0)).await.unwrap();
        hold(pool, args).await;
    } else if args.get(0).starts_with("mysql") {
        let pool = sqlx::MySqlPool::connect(args.get(0)).await.unwrap();
        hold(pool, args).await;
    } else {
        hold(sqlx::PgPool::connect(args.get(0)).await.unwrap(), args).await;
    }
}

async fn hold<D: TokenDialect>(pool: Pool<D>, args: Args) {
    let mut tx = D::begin(&pool).await.unwrap();
    let consumed = kind(args.get(1)).consume(&mut tx, args.get(2)).await;
    consumed.unwrap();
    say("consumed");
    std::future::pending().await
}

async fn a_killed_call_does_not_burn_its_token<D: TokenDialect>(pool: &Pool<D>, url: &str) {
    for name in ["signed", "stored"] {
        let token = kind(name).issue(pool, HOUR).await;
        let child = child("dies").arg(url).arg(name).arg(token.as_str());
        let mut child = child.spawn();
        child.wait_for("consumed").await;
        child.kill9();
        // Waits until the server has noticed.
        kind(name).spend(pool, token.as_str()).await.unwrap();
    }
}

#[tokio::test]
async fn tok_02_three_processes_on_postgres() {
    let database = Postgres::database().await;
    let pool = database.pool(2).await;
    each_token_is_consumed_once(&pool, database.url()).await;
    a_killed_call_does_not_burn_its_token(&pool, database.url()).await;
}

#[tokio::test]
async fn tok_02_three_processes_on_mariadb() {
    let database = MariaDb::database().await;
    let pool = database.pool(2).await;
    each_token_is_consumed_once(&pool, database.url()).await;
    a_killed_call_does_not_burn_its_token(&pool, database.url()).await;
}

#[tokio::test]
async fn tok_02_three_processes_on_sqlite() {
    let file = Sqlite::file().await;
    let pool = file.pool(2).await;
    each_token_is_consumed_once(&pool, &file.url()).await;
    a_killed_call_does_not_burn_its_token(&pool, &file.url()).await;
}
