CREATE TABLE IF NOT EXISTS {never} (
    id INTEGER PRIMARY KEY NOT NULL,
    CHECK (0)
) STRICT;
CREATE TABLE IF NOT EXISTS {table} (
    id BLOB PRIMARY KEY NOT NULL,
    scope TEXT NOT NULL,
    key_text TEXT,
    fingerprint BLOB NOT NULL,
    owner BLOB NOT NULL,
    incomplete INTEGER REFERENCES {local}_never (id) DEFERRABLE INITIALLY DEFERRED,
    outcome BLOB,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    expires_at INTEGER,
    known_until INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {schema}{local}_expires_at ON {local} (expires_at) WHERE expires_at IS NOT NULL;
