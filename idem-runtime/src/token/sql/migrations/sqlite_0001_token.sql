CREATE TABLE {table} (
    id BLOB PRIMARY KEY NOT NULL,
    binding BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX {index} ON {table_local} (expires_at);
