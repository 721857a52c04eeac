CREATE TABLE IF NOT EXISTS {fences} (
    id INTEGER PRIMARY KEY NOT NULL CHECK (id = 1),
    floor INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO {fences} (id, floor) VALUES (1, 0);
CREATE TABLE IF NOT EXISTS {table} (
    id BLOB PRIMARY KEY NOT NULL,
    scope TEXT NOT NULL,
    key_text TEXT,
    fingerprint BLOB NOT NULL,
    owner BLOB NOT NULL,
    fence INTEGER NOT NULL,
    lease_until INTEGER,
    held INTEGER NOT NULL DEFAULT 0,
    outcome BLOB,
    created_at INTEGER NOT NULL,
    completed_at INTEGER,
    expires_at INTEGER,
    known_until INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {schema}{local}_expires_at ON {local} (expires_at) WHERE expires_at IS NOT NULL;
-- A row that goes leaves its fence behind: the next reservation of any record is above it.
CREATE TRIGGER IF NOT EXISTS {fences}_keep AFTER DELETE ON {local}
WHEN OLD.fence > (SELECT floor FROM {local}_fence)
BEGIN
    UPDATE {local}_fence SET floor = OLD.fence WHERE id = 1;
END;
