-- Quotas whose use is known at the end of attempts only, and declarations that change while runs wait.

-- What attempts have used of a key, until whoever locks the key next takes it out of the bucket.
CREATE TABLE key_charge (
    key    TEXT COLLATE "C" NOT NULL,
    at     BIGINT NOT NULL,
    seq    BIGINT NOT NULL, -- one of the runs
    amount BIGINT NOT NULL,
    PRIMARY KEY (key, at, seq)
);

-- Projects in which something was declared for all runs: those that were there before are to take its
-- keys as well.
CREATE TABLE rekeying (
    project TEXT COLLATE "C" PRIMARY KEY,
    since   BIGINT NOT NULL, -- when it was declared
    after   BIGINT NOT NULL -- the run up to which that is done
);

CREATE INDEX declaration_updated ON declaration (updated_at);
