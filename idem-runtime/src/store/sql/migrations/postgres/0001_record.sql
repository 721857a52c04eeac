CREATE TABLE IF NOT EXISTS {never} (
    id smallint PRIMARY KEY,
    CHECK (false)
);
COMMENT ON TABLE {never} IS 'Stays empty: an unfinished reservation points here, so that it cannot be committed.';
CREATE TABLE IF NOT EXISTS {table} (
    id uuid PRIMARY KEY,
    scope text NOT NULL,
    key_text text,
    fingerprint bytea NOT NULL,
    owner uuid NOT NULL,
    incomplete smallint REFERENCES {never} (id) DEFERRABLE INITIALLY DEFERRED,
    outcome bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    expires_at timestamptz,
    known_until timestamptz
);
COMMENT ON TABLE {table} IS 'One row for each idempotent call: identity, payload digest, recorded outcome.';
COMMENT ON COLUMN {table}.known_until IS 'Until when the key is known after its outcome is gone, NULL: no longer than that.';
CREATE INDEX IF NOT EXISTS {local}_expires_at ON {table} USING brin (expires_at);
