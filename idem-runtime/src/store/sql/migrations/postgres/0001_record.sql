CREATE TABLE {never} (
    id smallint PRIMARY KEY,
    CHECK (false)
);
COMMENT ON TABLE {never} IS 'Stays empty: an unfinished reservation points here, so that it cannot be committed.';
CREATE TABLE {table} (
    id uuid PRIMARY KEY,
    scope text NOT NULL,
    key_text text,
    fingerprint bytea NOT NULL,
    owner uuid NOT NULL,
    incomplete smallint REFERENCES {never} (id) DEFERRABLE INITIALLY DEFERRED,
    outcome bytea,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    expires_at timestamptz
);
COMMENT ON TABLE {table} IS 'One row for each idempotent call: identity, payload digest, recorded outcome.';
CREATE INDEX ON {table} USING brin (expires_at);
