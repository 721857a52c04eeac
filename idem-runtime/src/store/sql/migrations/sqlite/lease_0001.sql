CREATE TABLE {fences} (
    id INTEGER PRIMARY KEY NOT NULL CHECK (id = 1),
    floor INTEGER NOT NULL
) STRICT;
INSERT INTO {fences} (id, floor) VALUES (1, 0);
CREATE TABLE {table} (
    id BLOB PRIMARY KEY NOT NULL,
    scope TEXT NOT NULL,
    key_text TEXT,
    fingerprint BLOB NOT NULL,
    owner BLOB NOT NULL,
    fence INTEGER NOT NULL,
    lease_until INTEGER,
    outcome BLOB,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX {index} ON {table_local} (expires_at) WHERE expires_at IS NOT NULL;
-- A row that goes leaves its fence behind: the next reservation of any record is above it.
CREATE TRIGGER {fences}_keep AFTER DELETE ON {table_local}
WHEN OLD.fence > (SELECT floor FROM {fences_local})
BEGIN
    UPDATE {fences_local} SET floor = OLD.fence WHERE id = 1;
END;
