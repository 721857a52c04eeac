//! The statements' texts, and names that are refused.

use idem::ErrorKind;
use idem::machine::Transition;

use crate::fixture::{Job, Status, jobs, orders};

#[test]
fn on_postgres() {
    assert_eq!(
        orders().statement::<sqlx::Postgres>(Status::Paid).unwrap(),
        "UPDATE \"shop_order\" SET \"status\" = 'paid', \"version\" = \"version\" + 1, \
         \"paid_at\" = COALESCE(\"paid_at\", CURRENT_TIMESTAMP) \
         WHERE \"id\" = $1 AND CAST(\"status\" AS text) COLLATE \"C\" IN ('pending')"
    );
    assert_eq!(
        orders().reading_statement::<sqlx::Postgres>(),
        "SELECT CAST(\"status\" AS text) FROM \"shop_order\" WHERE \"id\" = $1"
    );
}

#[test]
fn my_02_on_mysql_the_read_is_a_locking_one() {
    assert_eq!(
        orders().statement::<sqlx::MySql>(Status::Paid).unwrap(),
        "/*M! SET STATEMENT sql_mode='STRICT_ALL_TABLES' FOR */ \
         UPDATE /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ \
         `shop_order` SET `status` = 'paid', `version` = `version` + 1, \
         `paid_at` = COALESCE(`paid_at`, CURRENT_TIMESTAMP(6)) \
         WHERE `id` = ? AND CAST(CONVERT(`status` USING utf8mb4) AS BINARY) IN ('pending')"
    );
    assert_eq!(
        orders().reading_statement::<sqlx::MySql>(),
        "SELECT CAST(`status` AS CHAR) FROM `shop_order` WHERE `id` = ? FOR UPDATE"
    );
}

#[test]
fn on_sqlite_and_without_extras() {
    let two = Transition::<Two>::in_table("main.order").build().unwrap();
    assert_eq!(
        two.statement::<sqlx::Sqlite>(Two::Over).unwrap(),
        "UPDATE `main`.`order` SET `status` = 'over' WHERE `id` = ? \
         AND `status` COLLATE BINARY IN ('begun', 'half done')"
    );
    assert_eq!(two.statement::<sqlx::Sqlite>(Two::Begun), None);
    assert!(jobs().statement::<sqlx::Sqlite>(Job::Queued).is_some());
}

#[derive(idem::StateMachine, Clone, Copy, Debug, PartialEq, Eq)]
#[state_machine(column = text)]
enum Two {
    #[state(initial, to(HalfDone, Over))]
    Begun,
    #[state(to(Over), rename = "half done")]
    HalfDone,
    #[state(terminal)]
    Over,
}

#[test]
fn names_that_cannot_stand_in_a_statement_are_refused() {
    let table = |name: &str| Transition::<Status>::in_table(name);
    let ok = || table("shop_order");
    for wrong in [
        table(""),
        table("a.b.c"),
        table("shop order"),
        table("1st"),
        table("o\"; DROP TABLE o"),
        ok().id_column("id--"),
        ok().status_column("a.b"),
        ok().bump_version(""),
        ok().stamp_once(Status::Paid, "paid`at"),
        ok().id_column("status"),
        ok().bump_version("ID"),
        ok().stamp_once(Status::Paid, "version")
            .bump_version("version"),
    ] {
        let error = wrong.clone().build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TableMismatch, "{wrong:?}");
    }
    let both = ok()
        .stamp_once(Status::Paid, "at")
        .stamp_once(Status::Cancelled, "at");
    assert!(
        both.build().is_ok(),
        "one column for the first of two states"
    );
    assert!(table("shop.order").build().is_ok());
}
