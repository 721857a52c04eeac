//! Connections that are lost, with the answer of a commit.

use idem_runtime::steps::SagaError;
use idem_test_support::proxy::Fault;

use crate::shop::{ALL_DONE, Do, Shop, assert_all_undone, effects, key, order, steps};
use crate::world::{Keep, postgres};

/// Every statement of one run loses its connection once, before it is run or after.
async fn lost(pattern: &str, refuse: bool) {
    let world = postgres().await;
    let Keep::Postgres(database) = &world.keep else {
        return;
    };
    let mut no = 0;
    for fault in [Fault::CutBefore, Fault::CutAnswer] {
        let mut met = 0;
        for nth in 1.. {
            no += 1;
            let proxy = database.proxy();
            let armed = proxy.on_nth(pattern, nth, fault);
            let pool = database.pool_through(&proxy, 6);
            let shop = Shop::new(&world.pool);
            if refuse {
                shop.at("before:ship", Do::Refuse, 1);
            }
            let saga = steps(&shop).build(&pool).unwrap();
            let (key, order) = (key(no), order(no));
            let mut ended = saga.start(&key, &order).await;
            if matches!(&ended, Err(SagaError::Idem(_))) {
                // A caller who gets an error of the framework repeats the call.
                assert!(armed.fired(), "{ended:?}");
                world.let_time_pass().await;
                ended = saga.start(&key, &order).await;
            }
            let effects = effects(&world.pool, no).await;
            let point = format!("{pattern} {nth} {fault:?}");
            if refuse {
                let undone = matches!(ended, Err(SagaError::Compensated(_)));
                assert!(undone, "{point}: {ended:?}");
                assert_all_undone(&effects);
            } else {
                assert!(ended.is_ok(), "{point}: {ended:?}");
                assert_eq!(effects, ALL_DONE, "{point}");
                assert_eq!(shop.times("before:ship"), 1, "{point}");
            }
            if !armed.fired() {
                break;
            }
            met += 1;
        }
        assert!(met > 5, "{pattern}: {met}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_is_found_out_about() {
    lost("COMMIT", false).await;
    lost("COMMIT", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_statement_is_made_again() {
    lost("UPDATE idem_saga ", false).await;
    lost("UPDATE idem_saga ", true).await;
    lost("idem_saga_step", false).await;
}
