ALTER TABLE {table} ADD COLUMN known_until timestamptz;
COMMENT ON COLUMN {table}.known_until IS 'Until when the key is known after its outcome is gone; NULL: no longer than that.';
