-- Quotas whose use is known at the end of attempts only, and declarations that change while runs wait.

-- What attempts have used of a key, until whoever locks the key next takes it out of the bucket.
CREATE TABLE key_charge (
    key    TEXT NOT NULL,
    at     INTEGER NOT NULL,
    seq    INTEGER NOT NULL, -- one of the runs
    amount INTEGER NOT NULL,
    PRIMARY KEY (key, at, seq)
) WITHOUT ROWID;

-- Projects in which something was declared for all runs: those that were there before are to take its
-- keys as well.
CREATE TABLE rekeying (
    project TEXT PRIMARY KEY,
    since   INTEGER NOT NULL, -- when it was declared
    after   INTEGER NOT NULL -- the run up to which that is done
);

CREATE INDEX declaration_updated ON declaration (updated_at);
