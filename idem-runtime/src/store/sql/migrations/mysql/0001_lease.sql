CREATE TABLE IF NOT EXISTS {fences} (
    slot TINYINT UNSIGNED NOT NULL,
    PRIMARY KEY (slot)
) ENGINE = InnoDB
COMMENT = 'Locked while a fencing number is drawn, so that the number and its row are one step.';
REPLACE INTO {fences} (slot) SELECT eights.n * 8 + ones.n
FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3
    UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7) AS eights
CROSS JOIN (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3
    UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7) AS ones;
CREATE TABLE IF NOT EXISTS {table} (
    id BINARY(16) NOT NULL,
    scope TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    key_text VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    fingerprint VARBINARY(64) NOT NULL,
    owner BINARY(16) NOT NULL,
    fence BIGINT NOT NULL AUTO_INCREMENT COMMENT 'TRUNCATE would begin anew: use DELETE',
    lease_until BIGINT COMMENT 'Microseconds since 1970, as the other times',
    held BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'Kept after the lease until somebody decides',
    outcome LONGBLOB,
    created_at BIGINT NOT NULL,
    completed_at BIGINT COMMENT 'NULL while the call runs',
    expires_at BIGINT,
    known_until BIGINT COMMENT 'Until when the key is known after its outcome is gone, NULL: no longer than that',
    PRIMARY KEY (id),
    KEY fence (fence),
    KEY expires_at (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT = 'One row for each idempotent call with a lease: reserved until completed_at is set, completed then.';
