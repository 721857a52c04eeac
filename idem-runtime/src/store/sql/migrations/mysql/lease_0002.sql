ALTER TABLE {table} ADD COLUMN known_until BIGINT
COMMENT 'Until when the key is known after its outcome is gone; NULL: no longer than that';
