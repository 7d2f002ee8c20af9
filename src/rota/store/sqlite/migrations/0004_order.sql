-- Who goes first: resources of workers, shared keys, weights of shares, dependencies, predictions.

ALTER TABLE run ADD COLUMN keys TEXT; -- how much of which shared keys it takes; NULL: none
ALTER TABLE run ADD COLUMN timeout INTEGER; -- microseconds that an attempt may take; NULL: any
ALTER TABLE run ADD COLUMN follows TEXT; -- the run whose completion it answers
ALTER TABLE run ADD COLUMN previous_due INTEGER; -- the due time before its own; NULL: there was none
CREATE INDEX run_waits_for_key ON run (blocked_on, priority DESC, seq)
    WHERE state = 'BLOCKED' AND keys IS NOT NULL;
CREATE INDEX run_key_eligible ON run (eligible_at)
    WHERE state = 'BLOCKED' AND keys IS NOT NULL AND eligible_at IS NOT NULL;

ALTER TABLE session ADD COLUMN resources TEXT NOT NULL DEFAULT '{}'; -- thousandths by name
ALTER TABLE pool ADD COLUMN totals TEXT NOT NULL DEFAULT '{}'; -- of its live workers: for charges
-- Who was there a moment ago: what only they could do is not given up yet.
CREATE INDEX session_ended ON session (pool, expires_at) WHERE alive = 0;

ALTER TABLE chain ADD COLUMN group_weight REAL NOT NULL DEFAULT 1;
CREATE TABLE share_weight (
    share      TEXT PRIMARY KEY,
    weight     REAL NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);

-- Limits, named resources and quotas.
CREATE TABLE declaration (
    kind       TEXT NOT NULL,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    document   TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, project, name)
);

-- The row that everyone locks who takes of a key; of a rate limit also how full its bucket was.
CREATE TABLE shared_key (
    key   TEXT PRIMARY KEY,
    level REAL,
    at    INTEGER
);

-- Keys of runs that were let through to the queue. Whether a run holds its keys, or only may take them
-- soon, is told by its state: a row of a run that has ended counts nothing, and goes later.
CREATE TABLE run_key (
    key    TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (key, seq)
);

-- The best-ranked run of a pool that does not fit now, and the worker that is kept free for it.
CREATE TABLE reservation (
    pool       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    session    TEXT NOT NULL,
    shape      TEXT NOT NULL,
    behind     TEXT NOT NULL, -- the runs there whose ends it waits for, by their numbers
    expires_at INTEGER NOT NULL
);

-- `after`: which jobs follow which, by name.
CREATE TABLE dependency (
    job_id   TEXT NOT NULL,
    project  TEXT NOT NULL,
    upstream TEXT NOT NULL,
    PRIMARY KEY (job_id, upstream)
);
CREATE INDEX dependency_upstream ON dependency (project, upstream);

-- Completed runs that others follow, until that is done.
CREATE TABLE upstream_end (
    run_id   TEXT PRIMARY KEY,
    project  TEXT NOT NULL,
    job      TEXT NOT NULL,
    ended_at INTEGER NOT NULL
);

-- When jobs that others follow were last completed.
CREATE TABLE completion (
    project TEXT NOT NULL,
    job     TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (project, job)
);

-- When scheduled runs were thought to start: the accuracy of the forecast.
CREATE TABLE prediction (
    run_id   TEXT PRIMARY KEY,
    made_at  INTEGER NOT NULL,
    start_at INTEGER NOT NULL
);
CREATE INDEX prediction_made ON prediction (made_at);
