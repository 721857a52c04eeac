CREATE TABLE IF NOT EXISTS {fences} (
    id INTEGER PRIMARY KEY NOT NULL CHECK (id = 1),
    floor INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO {fences} (id, floor) VALUES (1, 0);
CREATE TABLE IF NOT EXISTS {table} (
    id BLOB PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    key_text TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    input BLOB,
    steps TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'compensating', 'completed', 'compensated')),
    cancelled INTEGER NOT NULL,
    rest TEXT CHECK (rest IN ('waiting', 'stuck')),
    cause TEXT,
    cause_step TEXT,
    cause_error TEXT,
    owner BLOB NOT NULL,
    fence INTEGER NOT NULL,
    due_at INTEGER,
    failed_step TEXT,
    error TEXT,
    created_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS {schema}{local}_due_at ON {local} (name, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS {schema}{local}_rest ON {local} (rest, id) WHERE rest IS NOT NULL;
CREATE INDEX IF NOT EXISTS {schema}{local}_ended_at ON {local} (ended_at) WHERE ended_at IS NOT NULL;
-- A row that goes leaves its fence behind: the next saga of any key is above it.
CREATE TRIGGER IF NOT EXISTS {fences}_keep AFTER DELETE ON {local}
WHEN OLD.fence > (SELECT floor FROM {local}_fence)
BEGIN
    UPDATE {local}_fence SET floor = OLD.fence WHERE id = 1;
END;
CREATE TABLE IF NOT EXISTS {steps} (
    saga BLOB NOT NULL REFERENCES {local} (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    unknown_effect INTEGER NOT NULL,
    left_alone INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    undo_attempts INTEGER NOT NULL,
    forgiven INTEGER NOT NULL DEFAULT 0,
    undo_forgiven INTEGER NOT NULL DEFAULT 0,
    result BLOB,
    error TEXT,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (saga, number)
) STRICT, WITHOUT ROWID;
