-- Work of other systems. Its attempts are leased to a session that no worker has, which never ends: how long each
-- may go on is in `external_attempt`, for whichever server looks.
INSERT INTO session (id, worker, pool, slots, labels, functions, guard_mode, version, lease, registered_at, expires_at)
VALUES ('external', '', '_external', 1000000, '{}', '[]', '', '', 0, 0, 200000000000000000);

CREATE TABLE external_attempt (
    run_id    TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    look_at   INTEGER, -- when no report has come in time, or now if it was cancelled; NULL: it has ended
    ends_at   INTEGER NOT NULL, -- its timeout
    heartbeat INTEGER, -- microseconds
    number    INTEGER NOT NULL DEFAULT 0, -- of the last report that was accepted
    digest    TEXT NOT NULL DEFAULT '', -- of that report
    chunks    INTEGER NOT NULL DEFAULT 0, -- of its output
    lines     INTEGER NOT NULL DEFAULT 0,
    bytes     INTEGER NOT NULL DEFAULT 0,
    truncated INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX external_due ON external_attempt (look_at) WHERE look_at IS NOT NULL;

-- What other systems are to be told of attempts: written with the step that it is about, sent until it is answered.
CREATE TABLE announcement (
    id       TEXT PRIMARY KEY, -- the same at each try
    told     TEXT NOT NULL, -- announce or cancel
    run_id   TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    made_at  INTEGER NOT NULL,
    next_at  INTEGER, -- when it is to be sent (again), or the lease of who sends it ends; NULL: it is done with
    tries    INTEGER NOT NULL DEFAULT 0,
    sent_at  INTEGER, -- when it was answered; NULL: it was not
    error    TEXT NOT NULL DEFAULT '' -- why the last try was in vain
) STRICT, WITHOUT ROWID;
CREATE INDEX announcement_due ON announcement (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX announcement_run ON announcement (run_id);

-- By which another system reports on one attempt, of each try to announce it.
CREATE TABLE report_token (
    digest  TEXT PRIMARY KEY,
    run_id  TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    made_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX report_token_run ON report_token (run_id);
