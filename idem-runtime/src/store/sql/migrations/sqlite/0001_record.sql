CREATE TABLE {never} (
    id INTEGER PRIMARY KEY NOT NULL,
    CHECK (0)
) STRICT;
CREATE TABLE {table} (
    id BLOB PRIMARY KEY NOT NULL,
    scope TEXT NOT NULL,
    key_text TEXT,
    fingerprint BLOB NOT NULL,
    owner BLOB NOT NULL,
    incomplete INTEGER REFERENCES {never_local} (id) DEFERRABLE INITIALLY DEFERRED,
    outcome BLOB,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX {index} ON {table_local} (expires_at) WHERE expires_at IS NOT NULL;
