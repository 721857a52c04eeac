CREATE SEQUENCE IF NOT EXISTS {fences};
COMMENT ON SEQUENCE {fences} IS 'Fencing numbers: a later owner has a higher one, also where the row was removed in between.';
CREATE TABLE IF NOT EXISTS {table} (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    key_text text NOT NULL,
    fingerprint bytea NOT NULL,
    input bytea,
    steps text NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'compensating', 'completed', 'compensated')),
    cancelled boolean NOT NULL,
    rest text CHECK (rest IN ('waiting', 'stuck')),
    cause text,
    cause_step text,
    cause_error text,
    owner uuid NOT NULL,
    fence bigint NOT NULL,
    due_at timestamptz,
    failed_step text,
    error text,
    created_at timestamptz NOT NULL,
    ended_at timestamptz
);
COMMENT ON TABLE {table} IS 'One row for each saga. Until due_at only its owner may touch it. NULL: it has ended, or is stuck.';
COMMENT ON COLUMN {table}.input IS 'NULL: cancelled before it began.';
COMMENT ON COLUMN {table}.cause IS 'Why it does not go on.';
CREATE INDEX IF NOT EXISTS {local}_due_at ON {table} (name, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS {local}_rest ON {table} (rest, id) WHERE rest IS NOT NULL;
CREATE INDEX IF NOT EXISTS {local}_ended_at ON {table} USING brin (ended_at);
CREATE TABLE IF NOT EXISTS {steps} (
    saga uuid NOT NULL REFERENCES {table} (id) ON DELETE CASCADE,
    number integer NOT NULL,
    name text NOT NULL,
    state text NOT NULL,
    unknown_effect boolean NOT NULL,
    left_alone boolean NOT NULL,
    attempts integer NOT NULL,
    undo_attempts integer NOT NULL,
    forgiven integer NOT NULL DEFAULT 0,
    undo_forgiven integer NOT NULL DEFAULT 0,
    result bytea,
    error text,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (saga, number)
);
COMMENT ON COLUMN {steps}.forgiven IS 'Attempts before a person let it be tried again.';
COMMENT ON TABLE {steps} IS 'One row for each step that was begun, with its recorded result.';
