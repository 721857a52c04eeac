ALTER TABLE {table} ADD COLUMN known_until INTEGER;
