CREATE TABLE IF NOT EXISTS {table} (
    id uuid PRIMARY KEY,
    binding bytea NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at timestamptz
);
COMMENT ON TABLE {table} IS 'One-time tokens: a row for each stored one, and for each signed one that is used.';
CREATE INDEX IF NOT EXISTS {local}_expires_at ON {table} (expires_at);
