//! Several processes, and one that dies in its body.

use std::time::Duration;

use idem_runtime::store::redis::RedisStore;
use idem_runtime::token::{RedisTokens, TokenDialect, TokenTable};
use idem_test_support::child::{Args, say};
use idem_test_support::{Body, MariaDb, Postgres, Redis, Sqlite};
use sqlx::Pool;

use super::{CallError, Does, Held, InDatabase, leased, owned};
use crate::redis::{eventually, namespace};
use crate::world::{HOUR, Tokens};

idem_test_support::child_roles!(calls, dies);

/// Does `$work` with the pool or the store that the first argument names, and the tokens that the
/// second one does.
macro_rules! with_args {
    ($args:ident => $work:ident) => {{
        let (url, kind) = ($args.get(0), $args.get(1));
        if url.starts_with("redis") {
            let store = on(url, kind).await;
            let tokens = RedisTokens::new(&store).hold_for(Duration::from_millis(500));
            let call = async |no: u32, token: &str, body: &Body| {
                leased(&store, &tokens, no, token, Does::Succeeds, body).await
            };
            $work(call, &$args).await;
        } else if url.starts_with("sqlite") {
            let options: sqlx::sqlite::SqliteConnectOptions = url.parse().unwrap();
            let options = options.busy_timeout(Duration::from_secs(20));
            let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
            with_args!(@ pool, kind, $args => $work);
        } else if url.starts_with("mysql") {
            let pool = sqlx::MySqlPool::connect(url).await.unwrap();
            with_args!(@ pool, kind, $args => $work);
        } else {
            let pool = sqlx::PgPool::connect(url).await.unwrap();
            with_args!(@ pool, kind, $args => $work);
        }
    }};
    (@ $pool:ident, $kind:ident, $args:ident => $work:ident) => {
        match tokens($kind) {
            Tokens::Signed(tokens) => $work(in_database(&$pool, &tokens), &$args).await,
            Tokens::Stored(tokens) => $work(in_database(&$pool, &tokens), &$args).await,
        }
    };
}

fn in_database<D: TokenDialect, T: InDatabase<D>>(
    pool: &Pool<D>,
    tokens: &T,
) -> impl AsyncFn(u32, &str, &Body) -> Result<u32, CallError> {
    async move |no: u32, token: &str, body: &Body| {
        owned(pool, tokens, no, token, Does::Succeeds, body).await
    }
}

fn tokens(kind: &str) -> Tokens {
    if kind == "signed" {
        Tokens::signed()
    } else {
        Tokens::stored()
    }
}

async fn on(url: &str, namespace: &str) -> RedisStore {
    let builder = RedisStore::builder().namespace(namespace);
    builder.connect(url).await.unwrap()
}

/// Arguments: URL, kind or namespace, tokens.
async fn calls(args: Args) {
    with_args!(args => call_all);
}

async fn call_all(call: impl AsyncFn(u32, &str, &Body) -> Result<u32, CallError>, args: &Args) {
    args.line_up().await;
    let process = std::process::id();
    for (n, token) in (0..).zip(args.get(2).split(' ')) {
        // Every process has keys of its own.
        match call(process.wrapping_mul(1000) + n, token, &Body::new()).await {
            Ok(_) => say(token),
            Err(error) => drop(error.reason()),
        }
    }
}

/// Arguments: URL, kind or namespace, a token.
async fn dies(args: Args) {
    with_args!(args => stay);
}

async fn stay(call: impl AsyncFn(u32, &str, &Body) -> Result<u32, CallError>, args: &Args) {
    let body = Body::held();
    let (_, ()) = tokio::join!(call(1, args.get(2), &body), async {
        body.started(1).await;
        say("in the body");
    });
}

/// Of three processes with the same thirty tokens one runs a call for each.
async fn one_call_a_token(url: &str, kind: &str, mut issued: Vec<String>) {
    let child = child("calls").arg(url).arg(kind).arg(issued.join(" "));
    let mut used: Vec<String> = child.run_many(3).await.into_iter().flatten().collect();
    used.sort();
    issued.sort();
    assert_eq!(used, issued, "{url} {kind}");
}

async fn killed_in_the_body(url: &str, kind: &str, token: &str) {
    let mut child = child("dies").arg(url).arg(kind).arg(token).spawn();
    child.wait_for("in the body").await;
    child.kill9();
}

async fn in_processes<D: TokenDialect>(pool: Pool<D>, url: &str) {
    TokenTable::default().migrate(&pool).await.unwrap();
    for kind in ["signed", "stored"] {
        let mut issued = Vec::new();
        for _ in 0..30 {
            issued.push(tokens(kind).issue(&pool, HOUR).await.into_string());
        }
        one_call_a_token(url, kind, issued).await;

        let token = tokens(kind).issue(&pool, HOUR).await.into_string();
        killed_in_the_body(url, kind, &token).await;
        // Another call: waits until the server has noticed.
        let paid = match tokens(kind) {
            Tokens::Signed(tokens) => in_database(&pool, &tokens)(2, &token, &Body::new()).await,
            Tokens::Stored(tokens) => in_database(&pool, &tokens)(3, &token, &Body::new()).await,
        };
        paid.unwrap();
    }
}

#[tokio::test]
async fn tok_02_three_processes_on_postgres() {
    let database = Postgres::database().await;
    let pool = database.pool(2).await;
    idem_runtime::store::postgres::migrate(&pool).await.unwrap();
    in_processes(pool, database.url()).await;
}

#[tokio::test]
async fn tok_02_three_processes_on_mariadb() {
    let database = MariaDb::database().await;
    let pool = database.pool(2).await;
    idem_runtime::store::mysql::migrate(&pool).await.unwrap();
    in_processes(pool, database.url()).await;
}

#[tokio::test]
async fn tok_02_three_processes_on_sqlite() {
    let file = Sqlite::file().await;
    let pool = file.pool(2).await;
    idem_runtime::store::sqlite::migrate(&pool).await.unwrap();
    in_processes(pool, &file.url()).await;
}

#[tokio::test]
async fn tok_02_three_processes_on_redis() {
    let (url, namespace) = (Redis::url().to_string(), namespace());
    let store = on(&url, &namespace).await;
    let tokens = RedisTokens::new(&store);
    let mut issued = Vec::new();
    for _ in 0..30 {
        issued.push(Held::issue(&tokens, HOUR).await);
    }
    one_call_a_token(&url, &namespace, issued).await;

    let token = Held::issue(&tokens, HOUR).await;
    killed_in_the_body(&url, &namespace, &token).await;
    // The hold ends, and another call has the token.
    eventually(async || tokens.refusal(&token).await.is_none()).await;
    let body = Body::new();
    let paid = leased(&store, &tokens, 2, &token, Does::Succeeds, &body).await;
    assert_eq!(paid.unwrap(), 2);
}
