//! Builds of several versions at one database, and schemas of which something is gone.

use idem_runtime::ErrorKind;
use idem_runtime::store::sql::Records;

use crate::world::{Kind, TABLES, World, all_well, calls, check_all, migrate_all, on_each};

on_each!(
    a_newer_schema_that_serves_this_build_is_accepted
    a_newer_schema_that_does_not_serve_it_is_refused
    an_older_schema_asks_for_the_migration
    a_table_that_was_dropped_is_made_again
    what_belongs_to_a_table_is_made_again
    many_processes_migrate_at_once
);

/// What a later build will do: to this one, which is older then.
async fn later<D: Kind>(world: &World<D>, version: i32, serves_from: i32) {
    for table in TABLES {
        let step = format!(
            "ALTER TABLE {table} ADD COLUMN later{version} INTEGER; \
             INSERT INTO {table}_schema (version, serves_from) VALUES ({version}, {serves_from})"
        );
        D::run(&world.pool, &step).await.unwrap();
    }
}

async fn a_newer_schema_that_serves_this_build_is_accepted<D: Kind>(world: World<D>) {
    migrate_all(&world.pool).await.unwrap();
    later(&world, 2, 1).await;
    all_well(check_all(&world.pool).await);
    migrate_all(&world.pool).await.unwrap();
    calls(&world.pool, 1).await;
}

async fn a_newer_schema_that_does_not_serve_it_is_refused<D: Kind>(world: World<D>) {
    migrate_all(&world.pool).await.unwrap();
    later(&world, 3, 2).await;
    // The next step says nothing of it, and takes nothing back.
    later(&world, 4, 1).await;
    for (check, table) in check_all(&world.pool).await.into_iter().zip(TABLES) {
        let error = check.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{error:?}");
        let says = format!(
            "{table} is at version 4, which serves builds from version 2 on; this build is made \
             for version 1"
        );
        assert!(error.to_string().contains(&says), "{error}");
    }
    let error = D::migrate_records(&world.pool).await.unwrap_err();
    assert!(error.to_string().contains("from version 2 on"), "{error}");
}

async fn an_older_schema_asks_for_the_migration<D: Kind>(world: World<D>) {
    migrate_all(&world.pool).await.unwrap();
    for table in TABLES {
        let back = format!("DELETE FROM {table}_schema");
        D::run(&world.pool, &back).await.unwrap();
    }
    for check in check_all(&world.pool).await {
        let error = check.unwrap_err().to_string();
        let says = "is at version 0, this build needs 1 (run `migrate`";
        assert!(error.contains(says), "{error}");
    }
    migrate_all(&world.pool).await.unwrap();
    all_well(check_all(&world.pool).await);
}

async fn a_table_that_was_dropped_is_made_again<D: Kind>(world: World<D>) {
    migrate_all(&world.pool).await.unwrap();
    calls(&world.pool, 1).await;
    for table in [
        "idem_saga_step",
        "idem_saga",
        "idem_token",
        "idem_lease",
        "idem_record",
    ] {
        let drop = format!("DROP TABLE {table}");
        D::run(&world.pool, &drop).await.unwrap();
    }
    for check in check_all(&world.pool).await {
        let error = check.unwrap_err().to_string();
        assert!(error.contains("is missing"), "{error}");
    }
    migrate_all(&world.pool).await.unwrap();
    all_well(check_all(&world.pool).await);
    calls(&world.pool, 1).await;
}

/// Or it is said that it cannot be: never does a migration succeed and the call fail.
async fn what_belongs_to_a_table_is_made_again<D: Kind>(world: World<D>) {
    for beside in ["idem_saga_step", "idem_record_never", "idem_lease_fence"] {
        migrate_all(&world.pool).await.unwrap();
        for what in ["TABLE", "SEQUENCE"] {
            // Not every database has each; with CASCADE the foreign key goes as well.
            for how in ["", " CASCADE"] {
                let drop = format!("DROP {what} {beside}{how}");
                let _ = D::run(&world.pool, &drop).await;
            }
        }
        if let Err(error) = migrate_all(&world.pool).await {
            assert!(error.to_string().contains("foreign key"), "{error}");
            D::run(&world.pool, "DROP TABLE idem_record").await.unwrap();
            migrate_all(&world.pool).await.unwrap();
        }
        all_well(check_all(&world.pool).await);
    }
    calls(&world.pool, 1).await;
}

async fn many_processes_migrate_at_once<D: Kind>(world: World<D>) {
    let migrating = (0..6).map(|_| {
        let pool = world.pool.clone();
        async move { migrate_all(&pool).await }
    });
    let migrating = migrating.map(tokio::spawn).collect::<Vec<_>>();
    for migrated in migrating {
        migrated.await.unwrap().unwrap();
    }
    all_well(check_all(&world.pool).await);
    calls(&world.pool, 1).await;
}

#[test]
fn a_name_that_would_be_cut_is_refused() {
    let longest = "n".repeat(52);
    assert!(Records::in_table(&longest).is_ok());
    assert!(Records::in_table(&format!("a_schema.{longest}")).is_ok());
    let error = Records::in_table(&format!("{longest}n")).unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}
