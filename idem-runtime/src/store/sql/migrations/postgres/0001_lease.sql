CREATE SEQUENCE IF NOT EXISTS {fences};
COMMENT ON SEQUENCE {fences} IS 'Fencing numbers: a later reservation has a higher one, also where the row was removed in between.';
CREATE TABLE IF NOT EXISTS {table} (
    id uuid PRIMARY KEY,
    scope text NOT NULL,
    key_text text,
    fingerprint bytea NOT NULL,
    owner uuid NOT NULL,
    fence bigint NOT NULL,
    lease_until timestamptz,
    held boolean NOT NULL DEFAULT false,
    outcome bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    expires_at timestamptz,
    known_until timestamptz
);
COMMENT ON TABLE {table} IS 'One row for each idempotent call with a lease: reserved until completed_at is set, completed then.';
COMMENT ON COLUMN {table}.known_until IS 'Until when the key is known after its outcome is gone, NULL: no longer than that.';
CREATE INDEX IF NOT EXISTS {local}_expires_at ON {table} USING brin (expires_at);
