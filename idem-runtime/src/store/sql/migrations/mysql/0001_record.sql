CREATE TABLE IF NOT EXISTS {table} (
    id BINARY(16) NOT NULL,
    scope TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    key_text VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    fingerprint VARBINARY(64) NOT NULL,
    owner BINARY(16) NOT NULL,
    outcome LONGBLOB COMMENT 'NULL while the call runs',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC, as the other times',
    completed_at DATETIME(3),
    expires_at DATETIME(3),
    known_until DATETIME(3) COMMENT 'Until when the key is known after its outcome is gone, NULL: no longer than that',
    PRIMARY KEY (id),
    KEY expires_at (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT = 'One row for each idempotent call: identity, payload digest, recorded outcome.';
