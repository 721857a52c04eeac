//! The shop's own tables. The framework's table is its own migration's business.
//!
//! The ledger has no unique index on purpose: nothing in it but the annotated functions keeps a
//! payment or a refund from being booked twice.

pub(crate) const SQLITE: &str = "
CREATE TABLE IF NOT EXISTS shop_trades (
    provider TEXT NOT NULL,
    trade_no TEXT NOT NULL,
    merchant TEXT NOT NULL,
    order_no TEXT NOT NULL,
    amount   INTEGER NOT NULL CHECK (amount > 0),
    refunded INTEGER NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
    currency TEXT NOT NULL,
    PRIMARY KEY (provider, trade_no)
) STRICT;
CREATE TABLE IF NOT EXISTS shop_orders (
    merchant TEXT NOT NULL,
    order_no TEXT NOT NULL,
    paid     INTEGER NOT NULL,
    refunded INTEGER NOT NULL,
    currency TEXT NOT NULL,
    PRIMARY KEY (merchant, order_no, currency)
) STRICT;
CREATE TABLE IF NOT EXISTS shop_ledger (
    entry     INTEGER PRIMARY KEY,
    merchant  TEXT NOT NULL,
    order_no  TEXT NOT NULL,
    provider  TEXT NOT NULL,
    trade_no  TEXT NOT NULL,
    refund_no TEXT,
    amount    INTEGER NOT NULL CHECK (amount > 0),
    notice_id TEXT NOT NULL,
    currency  TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS shop_balances (
    merchant TEXT NOT NULL,
    balance  INTEGER NOT NULL,
    currency TEXT NOT NULL,
    PRIMARY KEY (merchant, currency)
) STRICT;
";

pub(crate) const POSTGRES: &str = "
CREATE TABLE IF NOT EXISTS shop_trades (
    provider text   NOT NULL,
    trade_no text   NOT NULL,
    merchant text   NOT NULL,
    order_no text   NOT NULL,
    amount   bigint NOT NULL CHECK (amount > 0),
    refunded bigint NOT NULL DEFAULT 0 CHECK (refunded BETWEEN 0 AND amount),
    currency text   NOT NULL,
    PRIMARY KEY (provider, trade_no)
);
CREATE TABLE IF NOT EXISTS shop_orders (
    merchant text   NOT NULL,
    order_no text   NOT NULL,
    paid     bigint NOT NULL,
    refunded bigint NOT NULL,
    currency text   NOT NULL,
    PRIMARY KEY (merchant, order_no, currency)
);
CREATE TABLE IF NOT EXISTS shop_ledger (
    entry     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant  text   NOT NULL,
    order_no  text   NOT NULL,
    provider  text   NOT NULL,
    trade_no  text   NOT NULL,
    refund_no text,
    amount    bigint NOT NULL CHECK (amount > 0),
    notice_id text   NOT NULL,
    currency  text   NOT NULL
);
CREATE TABLE IF NOT EXISTS shop_balances (
    merchant text   NOT NULL,
    balance  bigint NOT NULL,
    currency text   NOT NULL,
    PRIMARY KEY (merchant, currency)
);
";
