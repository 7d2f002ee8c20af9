-- Runs that need several shared keys.

-- So much of a key that is kept from runs of lower rank, for one that could have it but waits for another.
-- It counts until its time is over, and while the run still waits for that one.
CREATE TABLE kept_key (
    key       TEXT PRIMARY KEY,
    seq       INTEGER NOT NULL,
    amount    INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    waits_for TEXT NOT NULL
);
CREATE INDEX kept_key_until ON kept_key (until);
