-- Runs that need several shared keys.

-- So much of a key that is kept from runs of lower rank, for one that could have it but waits for another.
-- It counts until its time is over, and while the run still waits for that one.
CREATE TABLE kept_key (
    key       TEXT COLLATE "C" PRIMARY KEY,
    seq       BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    until     BIGINT NOT NULL,
    waits_for TEXT COLLATE "C" NOT NULL
);
CREATE INDEX kept_key_until ON kept_key (until);
