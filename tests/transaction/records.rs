//! Where the records are: tables, namespaces, schemas that are missing or wrong.

use idem::{
    ErrorKind, Retry, idempotent,
    key::RecordId,
    store::{
        self,
        sql::{Dialect, OnTx, Records},
    },
};
use sqlx::{Pool, Transaction};

use crate::fixture::{Backend, Failure, Lite, Pg, Probe, Receipt, Tx, World, effect};

/// A service with records of its own.
struct Service {
    records: Records,
}

impl Service {
    #[idempotent(
        key = "pay:{id}",
        ttl = "1h",
        store = "self.records.on(tx)",
        scope = "test.service"
    )]
    async fn pay<B: Backend>(
        &self,
        tx: &mut Tx<'_, B>,
        id: &str,
        probe: &Probe,
    ) -> Result<Receipt, Failure> {
        probe.enter().await;
        B::execute(tx, effect(id)).await?;
        Ok(Receipt::of(id))
    }
}

async fn paid<B: Backend>(
    service: &Service,
    world: &World<B>,
    probe: &Probe,
) -> Result<Receipt, Failure> {
    let mut tx = world.begin().await;
    let receipt = service.pay::<B>(&mut tx, "one", probe).await?;
    tx.commit().await?;
    Ok(receipt)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_in_another_schema_and_namespace() {
    let world = World::<Pg>::new(2).await;
    world.execute("CREATE SCHEMA billing").await;
    let records = Records::in_table("billing.paid_calls").unwrap();
    store::postgres::migrate(&records.pool(&world.pool))
        .await
        .unwrap();
    store::postgres::check(&records.pool(&world.pool))
        .await
        .unwrap();
    two_namespaces(&world, &records, "billing.paid_calls").await;
    assert_eq!(world.records().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_in_another_sqlite_table_and_namespace() {
    let world = World::<Lite>::new(2).await;
    let records = Records::in_table("paid_calls").unwrap();
    store::sqlite::migrate(&records.pool(&world.pool))
        .await
        .unwrap();
    store::sqlite::check(&records.pool(&world.pool))
        .await
        .unwrap();
    two_namespaces(&world, &records, "paid_calls").await;
    assert_eq!(world.records().await, (0, 0));
}

/// Neither two namespaces nor two tables meet.
async fn two_namespaces<B: Backend>(world: &World<B>, records: &Records, table: &str) {
    let probe = Probe::new();
    let mut receipts = Vec::new();
    for (n, namespace) in ["", "a", "b", "a b"].into_iter().enumerate() {
        let service = Service {
            records: records.clone().namespace(namespace),
        };
        let first = paid(&service, world, &probe).await.unwrap();
        assert_eq!(paid(&service, world, &probe).await.unwrap(), first);
        assert_eq!(probe.runs(), n + 1);
        let id = RecordId::new(namespace, "test.service", &[], "pay:one");
        let found = records.lookup(&world.pool, id).await.unwrap();
        assert!(
            found.is_some(),
            "the id of the documented form: {namespace:?}"
        );
        receipts.push(first);
    }
    receipts.dedup();
    assert_eq!(receipts.len(), 4);
    let count = format!("SELECT count(*) FROM {table}");
    assert_eq!(world.number(count).await, 4);
    // Forgetting one leaves the others.
    let id = RecordId::new("a", "test.service", &[], "pay:one");
    assert!(records.forget(&world.pool, id).await.unwrap());
    assert!(!records.forget(&world.pool, id).await.unwrap());
    let service = |namespace| Service {
        records: records.clone().namespace(namespace),
    };
    paid(&service("a"), world, &probe).await.unwrap();
    paid(&service("b"), world, &probe).await.unwrap();
    assert_eq!(probe.runs(), 5);
}

async fn a_missing_table_says_what_to_do<B: Backend>() {
    let world = World::<B>::new(2).await;
    let probe = Probe::new();
    for table in ["not_migrated", "no_such_schema.record"] {
        let service = Service {
            records: Records::in_table(table).unwrap(),
        };
        let mut tx = world.begin().await;
        B::execute(&mut tx, effect("caller")).await.unwrap();
        let error = service
            .pay::<B>(&mut tx, "one", &probe)
            .await
            .unwrap_err()
            .idem();
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::Schema, Retry::Never)
        );
        assert!(error.to_string().contains("run the migrations"), "{error}");
        tx.rollback().await.unwrap();
    }
    assert_eq!((probe.runs(), world.effects("caller").await), (0, 0));
}

/// What `check` says to a new schema after `break_it`.
async fn refused<B: Backend>(pool: &Pool<B::Db>, break_it: &[&str], says: &str) {
    B::migrate(pool).await.unwrap();
    B::check(pool).await.unwrap();
    for sql in break_it {
        B::execute(&mut pool.acquire().await.unwrap(), *sql)
            .await
            .unwrap();
    }
    let error = B::check(pool).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Schema, Retry::Never)
    );
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_refuses_what_cannot_keep_the_promise_in_postgres() {
    let backend = Pg::start().await;
    let pool = Pg::open(&backend.url(), 1).await;
    let key = "ALTER TABLE idem_record DROP CONSTRAINT idem_record_incomplete_fkey";
    let partitioned = "CREATE TABLE idem_record (LIKE idem_record_old INCLUDING ALL EXCLUDING INDEXES, \
        day date NOT NULL DEFAULT current_date, PRIMARY KEY (id, day), \
        FOREIGN KEY (incomplete) REFERENCES idem_record_never DEFERRABLE INITIALLY DEFERRED) \
        PARTITION BY RANGE (day)";
    let cases: &[(&[&str], &str)] = &[
        (
            &["ALTER TABLE idem_record DROP COLUMN outcome"],
            "no column outcome",
        ),
        (
            &["ALTER TABLE idem_record ALTER outcome TYPE text"],
            "idem_record.outcome is text",
        ),
        (
            &["ALTER TABLE idem_record ALTER id TYPE text"],
            "idem_record.id is text",
        ),
        (
            &["ALTER TABLE idem_record DROP CONSTRAINT idem_record_pkey"],
            "primary key",
        ),
        (
            &[
                "ALTER TABLE idem_record RENAME TO idem_record_old",
                partitioned,
            ],
            "primary key",
        ),
        (&[key], "foreign key"),
        (
            &[
                key,
                "ALTER TABLE idem_record ADD FOREIGN KEY (incomplete) REFERENCES idem_record_never",
            ],
            "foreign key",
        ),
        (
            &["ALTER TABLE idem_record DISABLE TRIGGER ALL"],
            "foreign key",
        ),
        (
            &[
                "ALTER TABLE idem_record_never DROP CONSTRAINT idem_record_never_check",
                "INSERT INTO idem_record_never VALUES (0)",
            ],
            "empty",
        ),
        (
            &["UPDATE idem_record_schema SET version = 99, serves_from = 99"],
            "version 99",
        ),
        (&["DROP TABLE idem_record_schema"], "missing"),
    ];
    for (break_it, says) in cases {
        refused::<Pg>(&pool, break_it, says).await;
        for again in ["DROP SCHEMA public CASCADE", "CREATE SCHEMA public"] {
            Pg::execute(&mut pool.acquire().await.unwrap(), again)
                .await
                .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_refuses_what_cannot_keep_the_promise_in_sqlite() {
    const COLUMNS: &str = "scope TEXT, key_text TEXT, fingerprint BLOB, owner BLOB, outcome BLOB, \
                           created_at INTEGER, completed_at INTEGER, expires_at INTEGER, \
                           known_until INTEGER";
    let again = |rest: &str| format!("CREATE TABLE idem_record ({COLUMNS}, {rest})");
    let key = "incomplete INTEGER REFERENCES idem_record_never (id) DEFERRABLE INITIALLY DEFERRED";
    let no_primary = again(&format!("id BLOB, {key}"));
    let two_columns = again(&format!("id BLOB, {key}, PRIMARY KEY (id, scope)"));
    let wrong_type = again(&format!("id TEXT PRIMARY KEY, {key}"));
    let no_key = again("id BLOB PRIMARY KEY, incomplete INTEGER");
    let drop = "DROP TABLE idem_record";
    let cases: &[(&[&str], &str)] = &[
        (
            &["ALTER TABLE idem_record DROP COLUMN outcome"],
            "no column outcome",
        ),
        (&[drop, &wrong_type], "idem_record.id is TEXT"),
        (&[drop, &no_primary], "primary key"),
        (&[drop, &two_columns], "primary key"),
        (&[drop, &no_key], "foreign key"),
        (&["PRAGMA foreign_keys = OFF"], "foreign_keys"),
        (
            &[
                "PRAGMA ignore_check_constraints = ON",
                "INSERT INTO idem_record_never VALUES (0)",
            ],
            "empty",
        ),
        (
            &["UPDATE idem_record_schema SET version = 99, serves_from = 99"],
            "version 99",
        ),
        (&["DROP TABLE idem_record_schema"], "missing"),
    ];
    for (break_it, says) in cases {
        let backend = Lite::start().await;
        let pool = Lite::open(&backend.url(), 1).await;
        refused::<Lite>(&pool, break_it, says).await;
        pool.close().await;
    }
}

/// Eight at once, and again: each says that all is well, and one has done it.
async fn migrations_run_at_the_same_time<B: Backend>() {
    let backend = B::start().await;
    let pool = B::open(&backend.url(), 8).await;
    for _ in 0..2 {
        let all = (0..8).map(|_| B::migrate(&pool));
        for done in futures_util::future::join_all(all).await {
            done.unwrap();
        }
        B::check(&pool).await.unwrap();
    }
    let mut conn = pool.acquire().await.unwrap();
    let versions = B::number(&mut conn, "SELECT count(*) FROM idem_record_schema").await;
    assert_eq!(versions.unwrap(), 1);
}

/// A table of that name that is not ours stays as it is.
async fn migrating_leaves_a_strangers_table_alone<B: Backend>() {
    let backend = B::start().await;
    let pool = B::open(&backend.url(), 1).await;
    let execute = async |sql: &str| {
        B::execute(&mut pool.acquire().await.unwrap(), sql)
            .await
            .unwrap();
    };
    execute("CREATE TABLE idem_record (mine text)").await;
    execute("INSERT INTO idem_record VALUES ('kept')").await;
    let error = B::migrate(&pool).await.unwrap_err();
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    let mut conn = pool.acquire().await.unwrap();
    assert_eq!(
        B::number(&mut conn, "SELECT count(*) FROM idem_record")
            .await
            .unwrap(),
        1
    );
    assert!(
        B::number(&mut conn, "SELECT count(*) FROM idem_record_never")
            .await
            .is_err()
    );
}

/// A half-done row that was committed where the database could not refuse it: neither run again nor
/// answered; and it can be cleared by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_half_done_row_is_abandoned_in_postgres() {
    let world = World::<Pg>::new(2).await;
    world
        .execute("ALTER TABLE idem_record DROP CONSTRAINT idem_record_incomplete_fkey")
        .await;
    abandoned(&world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_half_done_row_is_abandoned_in_sqlite() {
    let backend = Lite::start().await;
    let options = backend.0.options().foreign_keys(false);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    Lite::migrate(&pool).await.unwrap();
    let world = World { pool, backend };
    world.execute("CREATE TABLE effect (name text)").await;
    abandoned(&world).await;
}

async fn abandoned<B: Backend>(world: &World<B>) {
    let service = Service {
        records: Records::default(),
    };
    let stuck = Probe::gated();
    let mut tx = world.begin().await;
    tokio::select! {
        answer = service.pay::<B>(&mut tx, "one", &stuck) => panic!("{answer:?}"),
        () = stuck.entered(1) => {}
    }
    tx.commit().await.unwrap();
    assert_eq!(world.records().await, (1, 1));
    // As if another process had left it.
    let zero = if B::NAME == Pg::NAME {
        "gen_random_uuid()"
    } else {
        "zeroblob(16)"
    };
    world
        .execute(format!("UPDATE idem_record SET owner = {zero}"))
        .await;
    let probe = Probe::new();
    for _ in 0..2 {
        let error = paid(&service, world, &probe).await.unwrap_err().idem();
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::Abandoned, Retry::Never)
        );
        assert_eq!(error.effect(), idem::Effect::Unknown);
    }
    // Neither purged nor forgotten nor shown as done.
    let records = Records::default();
    let id = RecordId::new("", "test.service", &[], "pay:one");
    assert_eq!(records.purge(&world.pool, 100).await.unwrap(), 0);
    assert!(records.lookup(&world.pool, id).await.unwrap().is_none());
    assert!(!records.forget(&world.pool, id).await.unwrap());
    assert_eq!(probe.runs(), 0);
    world.execute("DELETE FROM idem_record").await;
    paid(&service, world, &probe).await.unwrap();
    assert_eq!(probe.runs(), 1);
}

/// `on` is an ordinary value: a helper may make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_expression_may_call_a_function() {
    fn store<'a, 'c, D: Dialect>(tx: &'a mut Transaction<'c, D>) -> OnTx<'a, 'c, D> {
        Records::default().namespace("helper").on(tx)
    }
    #[idempotent(key = "{id}", ttl = "1h", store = store(tx))]
    async fn call(tx: &mut Tx<'_, Lite>, id: u32) -> Result<Receipt, Failure> {
        Ok(Receipt::of("helper"))
    }
    let world = World::<Lite>::new(1).await;
    let mut tx = world.begin().await;
    let first = call(&mut tx, 1).await.unwrap();
    assert_eq!(call(&mut tx, 1).await.unwrap(), first);
    tx.rollback().await.unwrap();
}

on_both! {
    a_missing_table_says_what_to_do,
    migrations_run_at_the_same_time,
    migrating_leaves_a_strangers_table_alone,
}
