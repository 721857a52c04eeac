CREATE SEQUENCE {fences};
COMMENT ON SEQUENCE {fences} IS 'Fencing numbers: a later reservation has a higher one, also where the row was removed in between.';
CREATE TABLE {table} (
    id uuid PRIMARY KEY,
    scope text NOT NULL,
    key_text text,
    fingerprint bytea NOT NULL,
    owner uuid NOT NULL,
    fence bigint NOT NULL,
    lease_until timestamptz,
    outcome bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    expires_at timestamptz
);
COMMENT ON TABLE {table} IS 'One row for each idempotent call with a lease: reserved until completed_at is set, completed then.';
CREATE INDEX ON {table} USING brin (expires_at);
