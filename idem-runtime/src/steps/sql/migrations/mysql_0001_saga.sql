CREATE TABLE IF NOT EXISTS {table} (
    id BINARY(16) NOT NULL,
    serial BIGINT NOT NULL AUTO_INCREMENT COMMENT 'never given twice: fencing numbers are above those of a row that was removed',
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    key_text MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    fingerprint VARBINARY(64) NOT NULL,
    input LONGBLOB COMMENT 'NULL: cancelled before it began',
    steps TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    state VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    cancelled BOOLEAN NOT NULL,
    rest VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    owner BINARY(16) NOT NULL,
    fence BIGINT NOT NULL COMMENT 'how often it was claimed',
    due_at DATETIME(6) COMMENT 'UTC, as the other times. Until then only its owner may touch it. NULL: it has ended, or is stuck',
    failed_step VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at DATETIME(6) NOT NULL,
    ended_at DATETIME(6),
    PRIMARY KEY (id),
    UNIQUE KEY serial (serial),
    KEY due_at (due_at),
    KEY ended_at (ended_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT = 'One row for each saga.';
CREATE TABLE IF NOT EXISTS {steps} (
    saga BINARY(16) NOT NULL,
    number INT NOT NULL,
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    state VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    unknown_effect BOOLEAN NOT NULL,
    left_alone BOOLEAN NOT NULL,
    attempts INT NOT NULL,
    undo_attempts INT NOT NULL,
    result LONGBLOB,
    error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    changed_at DATETIME(6) NOT NULL,
    PRIMARY KEY (saga, number),
    FOREIGN KEY (saga) REFERENCES {table} (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
COMMENT = 'One row for each step that was begun, with its recorded result.';
