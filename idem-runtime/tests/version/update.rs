//! One update, and several at once.

use idem_runtime::ErrorKind;
use idem_runtime::version::VersionedUpdate;
use sqlx::Postgres;

use crate::shop::on_each;

on_each! {
    an_update_in_the_expected_version_raises_it
    sm_05_a_stale_update_says_so_and_changes_nothing
    sm_06_a_row_that_is_gone_is_no_conflict
    my_02_equal_values_are_a_change_of_version
    sm_05_a_batch_with_a_stale_row_changes_none_even_when_committed
    a_batch_changes_all_its_rows
    other_columns_and_several_values
    the_last_version_is_refused
    values_and_ids_keep_their_types
    names_are_those_of_the_catalogue
    a_version_that_does_not_count_is_refused
    a_table_that_does_not_fit_is_told_by_its_name
}

macro_rules! an_update_in_the_expected_version_raises_it {
    ($pool:ident, $db:ty) => {
        let mut tx = $pool.begin().await.unwrap();
        let update = crate::shop::balance::<$db>();
        let updated = update.apply(&mut tx, 1_i64, 3, (70_i64,)).await.unwrap();
        assert_eq!(updated.version, 4);
        let again = update
            .apply(&mut tx, 1_i64, updated.version, (60_i64,))
            .await;
        assert_eq!(again.unwrap().version, 5);
        tx.commit().await.unwrap();
        assert_eq!(crate::shop::row!(&$pool, 1), (60, Some(5)));
        assert_eq!(crate::shop::row!(&$pool, 2), (100, Some(3)));
    };
}
use an_update_in_the_expected_version_raises_it;

macro_rules! sm_05_a_stale_update_says_so_and_changes_nothing {
    ($pool:ident, $db:ty) => {
        let mut conn = $pool.acquire().await.unwrap();
        let update = crate::shop::balance::<$db>();
        for (id, expected, actual) in [(1_i64, 2, Some(3)), (1, 4, Some(3)), (3, 3, None)] {
            let error = update.apply(&mut conn, id, expected, (70_i64,)).await;
            let error = error.unwrap_err();
            assert!(
                crate::shop::is_conflict(&error, expected, actual),
                "{error:?}"
            );
            // No repeat gives a row a version that has none.
            assert_eq!(error.calls_for_retry(), actual.is_some());
            assert_eq!(error.effect(), idem_runtime::Effect::None);
            assert_eq!(crate::shop::row!(&mut *conn, id), (100, actual));
        }
    };
}
use sm_05_a_stale_update_says_so_and_changes_nothing;

macro_rules! sm_06_a_row_that_is_gone_is_no_conflict {
    ($pool:ident, $db:ty) => {
        let mut conn = $pool.acquire().await.unwrap();
        sqlx::query("DELETE FROM account WHERE id = 1")
            .execute(&mut *conn)
            .await
            .unwrap();
        let update = crate::shop::balance::<$db>();
        let error = update.apply(&mut conn, 1_i64, 3, (70_i64,)).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, idem_runtime::version::VersionError::NotFound),
            "{error:?}"
        );
        assert!(!error.calls_for_retry());
    };
}
use sm_06_a_row_that_is_gone_is_no_conflict;

macro_rules! my_02_equal_values_are_a_change_of_version {
    ($pool:ident, $db:ty) => {
        let mut conn = $pool.acquire().await.unwrap();
        let update = crate::shop::balance::<$db>();
        let updated = update.apply(&mut conn, 1_i64, 3, (100_i64,)).await;
        assert_eq!(updated.unwrap().version, 4);
    };
}
use my_02_equal_values_are_a_change_of_version;

macro_rules! sm_05_a_batch_with_a_stale_row_changes_none_even_when_committed {
    ($pool:ident, $db:ty) => {
        let update = crate::shop::balance::<$db>();
        let rows = [(1_i64, 3, (1_i64,)), (2, 2, (1,))];
        let mut tx = $pool.begin().await.unwrap();
        sqlx::query("UPDATE account SET note = 'mine'")
            .execute(&mut *tx)
            .await
            .unwrap();
        let error = update.apply_all(&mut tx, rows).await.unwrap_err();
        tx.commit().await.unwrap();
        assert_eq!(error.row, Some(1));
        assert!(crate::shop::is_conflict(&error.error, 2, Some(3)));
        assert_eq!(crate::shop::row!(&$pool, 1), (100, Some(3)));
        assert_eq!(crate::shop::row!(&$pool, 2), (100, Some(3)));
        let notes: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM account WHERE note = 'mine'")
            .fetch_one(&$pool)
            .await
            .unwrap();
        assert_eq!(notes, 3);
    };
}
use sm_05_a_batch_with_a_stale_row_changes_none_even_when_committed;

macro_rules! a_batch_changes_all_its_rows {
    ($pool:ident, $db:ty) => {
        let update = crate::shop::balance::<$db>();
        let rows = [(1_i64, 3, (1_i64,)), (2, 3, (2,))];
        // Without a transaction of the caller's it is one of its own.
        let mut conn = $pool.acquire().await.unwrap();
        let done = update.apply_all(&mut conn, rows).await.unwrap();
        assert_eq!(done.iter().map(|d| d.version).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(crate::shop::row!(&$pool, 1), (1, Some(4)));
        assert_eq!(crate::shop::row!(&$pool, 2), (2, Some(4)));
    };
}
use a_batch_changes_all_its_rows;

macro_rules! other_columns_and_several_values {
    ($pool:ident, $db:ty) => {
        use idem_runtime::version::VersionedUpdate;
        let sql = "CREATE TABLE job (no VARCHAR(20) PRIMARY KEY, state TEXT NOT NULL, \
                   tries INT NOT NULL, rev INT NOT NULL); INSERT INTO job VALUES ('j-1', 'new', 0, 0)";
        sqlx::raw_sql(sql).execute(&$pool).await.unwrap();
        let update = VersionedUpdate::<$db, _>::new("job", ["state", "tries"]).unwrap();
        let update = update.id_column("no").unwrap();
        let update = update.version_column("rev").unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        let state = String::from("it's; done");
        let done = update.apply(&mut conn, "j-1", 0, (state.as_str(), 2_i32)).await;
        assert_eq!(done.unwrap().version, 1);
        let row: (String, i32, i32) = sqlx::query_as("SELECT state, tries, rev FROM job")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        assert_eq!(row, (state, 2, 1));
        let stale = update.apply(&mut conn, "j-1", 0, ("late", 3_i32)).await;
        assert!(crate::shop::is_conflict(&stale.unwrap_err(), 0, Some(1)));
    };
}
use other_columns_and_several_values;

macro_rules! the_last_version_is_refused {
    ($pool:ident, $db:ty) => {
        let sql = format!("UPDATE account SET version = {} WHERE id = 1", i64::MAX);
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&$pool)
            .await
            .unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        let update = crate::shop::balance::<$db>();
        let error = update.apply(&mut conn, 1_i64, i64::MAX, (70_i64,)).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, idem_runtime::version::VersionError::NotSent(_)),
            "{error:?}"
        );
        assert!(!error.calls_for_retry());
        assert_eq!(crate::shop::row!(&$pool, 1), (100, Some(i64::MAX)));
    };
}
use the_last_version_is_refused;

/// One object, one connection: a prepared statement must not read a value as of another type.
macro_rules! values_and_ids_keep_their_types {
    ($pool:ident, $db:ty) => {
        let sql = "CREATE TABLE weight (id BIGINT PRIMARY KEY, kilos DOUBLE PRECISION, \
                   version BIGINT NOT NULL); INSERT INTO weight VALUES (1, 0, 0)";
        sqlx::raw_sql(sql).execute(&$pool).await.unwrap();
        let update =
            idem_runtime::version::VersionedUpdate::<$db, 1>::new("weight", ["kilos"]).unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        for version in [0, 3] {
            let whole = update.apply(&mut conn, 1_i64, version, (7_i64,)).await;
            assert_eq!(whole.unwrap().version, version + 1);
            let part = update
                .apply(&mut conn, 1_i32, version + 1, (1.5_f64,))
                .await;
            assert_eq!(part.unwrap().version, version + 2);
            let kilos: f64 = sqlx::query_scalar("SELECT kilos FROM weight")
                .fetch_one(&mut *conn)
                .await
                .unwrap();
            assert_eq!(kilos, 1.5);
            let none = Option::<f64>::None;
            let none = update.apply(&mut conn, 1_i16, version + 2, (none,)).await;
            assert_eq!(none.unwrap().version, version + 3);
            let stale = update.apply(&mut conn, 1_i32, version, (2.5_f64,)).await;
            let stale = stale.unwrap_err();
            assert!(crate::shop::is_conflict(&stale, version, Some(version + 3)));
        }
        let rows = [(1_i64, 6, (2.5_f64,)), (1, 7, (3.5,))];
        let rows = update.apply_all(&mut conn, rows).await.unwrap();
        assert_eq!(rows.last().unwrap().version, 8);
    };
}
use values_and_ids_keep_their_types;

/// `user` is the session's user where it is not quoted.
macro_rules! names_are_those_of_the_catalogue {
    ($pool:ident, $db:ty) => {
        use idem_runtime::version::{VersionError, VersionedUpdate};
        let sql = "CREATE TABLE \"order\" (\"user\" VARCHAR(20) PRIMARY KEY, \
                   \"group\" BIGINT, \"Limit\" BIGINT NOT NULL); \
                   INSERT INTO \"order\" VALUES ('alice', 1, 0)";
        sqlx::raw_sql(sql).execute(&$pool).await.unwrap();
        let update = VersionedUpdate::<$db, _>::new("order", ["group"]).unwrap();
        let update = update.id_column("user").unwrap();
        let update = update.version_column("Limit").unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        let none = update.apply(&mut conn, "postgres", 0, (9_i64,)).await;
        assert!(matches!(none, Err(VersionError::NotFound)), "{none:?}");
        let alice = update.apply(&mut conn, "alice", 0, (2_i64,)).await;
        assert_eq!(alice.unwrap().version, 1);
        let row: (i64, i64) = sqlx::query_as("SELECT \"group\", \"Limit\" FROM \"order\"")
            .fetch_one(&mut *conn)
            .await
            .unwrap();
        assert_eq!(row, (2, 1));
    };
}
use names_are_those_of_the_catalogue;

macro_rules! a_version_that_does_not_count_is_refused {
    ($pool:ident, $db:ty) => {
        use idem_runtime::version::{VersionError, VersionedUpdate};
        let sql = "CREATE TABLE point (id BIGINT PRIMARY KEY, x BIGINT, real_one REAL NOT NULL, \
                   at TIMESTAMP, no BIGINT, n INT NOT NULL); \
                   INSERT INTO point VALUES (1, 0, 16777216, NULL, 3, 3)";
        sqlx::raw_sql(sql).execute(&$pool).await.unwrap();
        let mut conn = $pool.acquire().await.unwrap();
        let by = |column| {
            let update = VersionedUpdate::<$db, _>::new("point", ["x"]).unwrap();
            update.version_column(column).unwrap()
        };
        for column in ["real_one", "at"] {
            let update = by(column);
            for error in [
                update.check(&mut conn).await.unwrap_err(),
                update
                    .apply(&mut conn, 1_i64, 16_777_216, (1_i64,))
                    .await
                    .unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(text.contains(&format!("`{column}` of `point`")), "{text}");
                let VersionError::Failed(error) = error else {
                    panic!("{error:?}");
                };
                assert_eq!(error.kind(), idem_runtime::ErrorKind::TableMismatch);
            }
        }
        // One that may be NULL is no silent loss: a row without a version is told as such.
        let nullable = by("no");
        let checked = nullable.check(&mut conn).await.unwrap_err().to_string();
        assert!(checked.contains("NOT NULL"), "{checked}");
        nullable.apply(&mut conn, 1_i64, 3, (1_i64,)).await.unwrap();
        by("n").check(&mut conn).await.unwrap();
        let missing = by("nn").check(&mut conn).await.unwrap_err().to_string();
        assert!(missing.contains("no column `nn` in `point`"), "{missing}");
    };
}
use a_version_that_does_not_count_is_refused;

macro_rules! a_table_that_does_not_fit_is_told_by_its_name {
    ($pool:ident, $db:ty) => {
        use idem_runtime::version::{VersionError, VersionedUpdate};
        use idem_runtime::{Effect, ErrorKind, Retry};
        let mut conn = $pool.acquire().await.unwrap();
        for update in [
            VersionedUpdate::<$db, _>::new("accounts", ["balance"]).unwrap(),
            VersionedUpdate::<$db, _>::new("account", ["balances"]).unwrap(),
        ] {
            let error = update
                .apply(&mut conn, 1_i64, 3, (1_i64,))
                .await
                .unwrap_err();
            assert_eq!(
                (error.effect(), error.retry()),
                (Effect::None, Retry::Never)
            );
            assert!(error.to_string().contains("`account"), "{error}");
            let VersionError::Failed(error) = error else {
                panic!("{error:?}");
            };
            assert_eq!(error.kind(), ErrorKind::TableMismatch, "{error}");
        }
    };
}
use a_table_that_does_not_fit_is_told_by_its_name;

#[test]
fn names_are_checked_before_they_stand_in_a_statement() {
    let refused = |made: Result<VersionedUpdate<Postgres, 1>, idem_runtime::Error>| {
        assert_eq!(made.unwrap_err().kind(), ErrorKind::TableMismatch);
    };
    for name in ["", "a b", "a;b", "a\"b", "1a", "a.b", "a--"] {
        refused(VersionedUpdate::new("account", [name]));
        let update = || VersionedUpdate::new("account", ["balance"]).unwrap();
        refused(update().id_column(name));
        refused(update().version_column(name));
    }
    refused(VersionedUpdate::new("a.b.c", ["balance"]));
    // Set by hand, the version would not be raised by one.
    refused(VersionedUpdate::new("account", ["Version"]));
}

#[tokio::test]
async fn what_a_trigger_keeps_is_neither_done_nor_a_conflict() {
    let (pool, _keep) = crate::shop::postgres().await;
    let keep = "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
                CREATE TRIGGER keep BEFORE UPDATE ON account FOR EACH ROW EXECUTE FUNCTION keep()";
    sqlx::raw_sql(keep).execute(&pool).await.unwrap();
    let mut conn = pool.acquire().await.unwrap();
    let error = crate::shop::balance::<Postgres>()
        .apply(&mut conn, 1_i64, 3, (70_i64,))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            idem_runtime::version::VersionError::Kept { version: 3 }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_wrong_type_is_no_outage() {
    let (pool, _keep) = crate::shop::postgres().await;
    let update = crate::shop::balance::<Postgres>();
    let mut conn = pool.acquire().await.unwrap();
    let id = update.apply(&mut conn, "1", 3, (70_i64,)).await;
    let value = update.apply(&mut conn, 1_i64, 3, ("70",)).await;
    for error in [id.unwrap_err(), value.unwrap_err()] {
        assert_eq!(error.effect(), idem_runtime::Effect::None);
        assert_eq!(error.retry(), idem_runtime::Retry::Never);
        assert!(error.to_string().contains("`account`"), "{error}");
    }
    // Postgres tells them apart; neither is taken for the other.
    let mixed =
        "CREATE TABLE \"Account\" (LIKE account); INSERT INTO \"Account\" VALUES (1, 5, '', 3)";
    sqlx::raw_sql(mixed).execute(&pool).await.unwrap();
    let mixed = VersionedUpdate::<Postgres, _>::new("public.Account", ["balance"]).unwrap();
    mixed.apply(&mut conn, 1_i64, 3, (6_i64,)).await.unwrap();
    assert_eq!(crate::shop::row!(&pool, 1), (100, Some(3)));
}
