CREATE TABLE IF NOT EXISTS {table} (
    id BINARY(16) NOT NULL,
    binding BINARY(16) NOT NULL,
    expires_at BIGINT NOT NULL COMMENT 'Milliseconds since 1970, as the other time',
    used_at BIGINT,
    PRIMARY KEY (id),
    KEY expires_at (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
COMMENT = 'One-time tokens: a row for each stored one, and for each signed one that is used.';
