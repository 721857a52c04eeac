//! The printed texts, run by hand, are a whole schema.

use idem_runtime::ErrorKind;

use crate::world::{Kind, TABLES, World, all_well, calls, check_all, migrate_all, on_each, texts};

on_each!(
    run_by_the_databases_own_client
    run_in_a_transaction_as_migration_tools_do
    run_after_migrate
);

/// How often each schema's steps are noted.
async fn notes<D: Kind>(world: &World<D>) -> Vec<i64> {
    let mut notes = Vec::new();
    for table in TABLES {
        let count = format!("SELECT count(*) FROM {table}_schema");
        notes.push(D::number(&world.pool, &count).await);
    }
    notes
}

async fn run_by_the_databases_own_client<D: Kind>(world: World<D>) {
    for check in check_all(&world.pool).await {
        assert_eq!(check.unwrap_err().kind(), ErrorKind::Schema);
    }
    let texts = texts(&world.pool);
    // A text that was interrupted is run again.
    for text in texts.iter().chain(&texts) {
        world.client(text);
    }
    all_well(check_all(&world.pool).await);
    let before = notes(&world).await;
    migrate_all(&world.pool).await.unwrap();
    assert_eq!(notes(&world).await, before);
    calls(&world.pool, 1).await;
    for text in &texts {
        world.client(text);
    }
    all_well(check_all(&world.pool).await);
    assert_eq!(D::call(&world.pool, 1, 2).await.unwrap(), 1, "it is kept");
}

async fn run_in_a_transaction_as_migration_tools_do<D: Kind>(world: World<D>) {
    for text in texts(&world.pool) {
        let begin = if D::ONE_WRITER {
            "BEGIN IMMEDIATE"
        } else {
            "BEGIN"
        };
        let all = format!("{begin};\n{text}COMMIT;");
        D::run(&world.pool, &all).await.unwrap();
    }
    all_well(check_all(&world.pool).await);
    migrate_all(&world.pool).await.unwrap();
    calls(&world.pool, 1).await;
}

async fn run_after_migrate<D: Kind>(world: World<D>) {
    migrate_all(&world.pool).await.unwrap();
    calls(&world.pool, 1).await;
    for text in texts(&world.pool) {
        world.client(&text);
    }
    all_well(check_all(&world.pool).await);
    calls(&world.pool, 2).await;
}
