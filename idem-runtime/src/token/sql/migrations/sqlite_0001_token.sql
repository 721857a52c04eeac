CREATE TABLE IF NOT EXISTS {table} (
    id BLOB PRIMARY KEY NOT NULL,
    binding BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {schema}{local}_expires_at ON {local} (expires_at);
