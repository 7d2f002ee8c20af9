-- Instants are microseconds since 1970, UTC. JSON is text. Flags are 0 or 1.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE job (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    name             TEXT NOT NULL,
    version          INTEGER NOT NULL,
    shard            INTEGER NOT NULL,
    set_name         TEXT NOT NULL,
    created_by       TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    enabled          INTEGER NOT NULL,
    paused           INTEGER NOT NULL DEFAULT 0,
    paused_by        TEXT NOT NULL DEFAULT '',
    paused_until     INTEGER,
    finished_at      INTEGER,
    deleted_at       INTEGER,
    expected_seconds REAL,
    stuck_since      INTEGER -- since when its runs wait in vain, and somebody was told
) STRICT, WITHOUT ROWID;
CREATE INDEX job_stuck ON job (stuck_since) WHERE stuck_since IS NOT NULL;
CREATE INDEX job_pause ON job (paused_until) WHERE paused_until IS NOT NULL;
CREATE UNIQUE INDEX job_name ON job (project, name) WHERE deleted_at IS NULL;

CREATE TABLE job_version (
    job_id     TEXT NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    rules      TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, version)
) STRICT, WITHOUT ROWID;

-- Apart from `job`, so that the rows the scheduler moves stay few bytes wide.
CREATE TABLE schedule (
    job_id    TEXT PRIMARY KEY,
    shard     INTEGER NOT NULL,
    next_at   INTEGER,
    held_from INTEGER,
    anchor    INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    waits     INTEGER NOT NULL DEFAULT 0 -- its next due time depends on the end of its latest run
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_waiting ON schedule (job_id) WHERE waits = 1;

CREATE TABLE run (
    seq              INTEGER PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    project          TEXT NOT NULL,
    job_id           TEXT NOT NULL,
    job              TEXT NOT NULL,
    job_version      INTEGER NOT NULL,
    trigger          TEXT NOT NULL,
    state            TEXT NOT NULL,
    cause            TEXT NOT NULL DEFAULT '',
    message          TEXT NOT NULL DEFAULT '',
    due_at           INTEGER NOT NULL,
    release_at       INTEGER NOT NULL,
    eligible_at      INTEGER,
    deadline_at      INTEGER,
    late_at          INTEGER, -- a later start misses the job's objective
    drop_at          INTEGER, -- a later start does not happen
    is_late          INTEGER, -- whether the objective was missed; NULL: not judged yet
    priority         INTEGER NOT NULL,
    pool             TEXT NOT NULL,
    chain            TEXT NOT NULL,
    shape            TEXT NOT NULL,
    delivery         TEXT NOT NULL,
    max_attempts     INTEGER NOT NULL,
    attempt          INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    losses           INTEGER NOT NULL DEFAULT 0,
    session          TEXT,
    capacity         REAL NOT NULL DEFAULT 0, -- fraction of the pool that the attempt was charged for
    expected         REAL NOT NULL,
    blocked_on       TEXT,
    reasons          TEXT,
    inputs           TEXT,
    outputs          TEXT,
    progress         TEXT,
    created_by       TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    queued_at        INTEGER,
    claimed_at       INTEGER,
    started_at       INTEGER,
    first_started_at INTEGER,
    ended_at         INTEGER,
    cancel_at        INTEGER,
    cancel_by        TEXT NOT NULL DEFAULT '',
    exit_code        INTEGER,
    signal           INTEGER,
    retry_of         TEXT,
    backfill         TEXT,
    -- The job, while the run counts at its gates (overlap, max_concurrency); else NULL.
    gate_job         TEXT,
    -- How the latest attempt ended; earlier attempts are rows of `attempt`.
    result           TEXT,
    steps            TEXT,
    cpu_seconds      REAL NOT NULL DEFAULT 0,
    max_memory       INTEGER NOT NULL DEFAULT 0,
    output           BLOB,
    output_state     TEXT NOT NULL DEFAULT 'none',
    output_bytes     INTEGER NOT NULL DEFAULT 0,
    output_lines     INTEGER NOT NULL DEFAULT 0,
    truncated        INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX run_job ON run (job_id, seq);
CREATE INDEX run_gated ON run (gate_job, state) WHERE gate_job IS NOT NULL AND state IN
    ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN');
CREATE INDEX run_queued ON run (chain, seq) WHERE state = 'QUEUED';
CREATE INDEX run_blocked ON run (blocked_on, seq) WHERE state = 'BLOCKED';
CREATE INDEX run_eligible ON run (eligible_at) WHERE state = 'SCHEDULED';
CREATE INDEX run_held ON run (session) WHERE state IN ('CLAIMED', 'PROCESSING');
CREATE INDEX run_deadline ON run (deadline_at) WHERE deadline_at IS NOT NULL AND state IN
    ('SCHEDULED', 'BLOCKED', 'QUEUED');
CREATE INDEX run_drop ON run (drop_at) WHERE drop_at IS NOT NULL AND state IN
    ('SCHEDULED', 'BLOCKED', 'QUEUED');
CREATE INDEX run_objective ON run (late_at) WHERE late_at IS NOT NULL AND is_late IS NULL;
CREATE INDEX run_backfill ON run (backfill, seq) WHERE backfill IS NOT NULL;
CREATE INDEX run_backfilled ON run (job_id, due_at) WHERE backfill IS NOT NULL;
CREATE INDEX run_unknown ON run (seq) WHERE state = 'UNKNOWN';

-- What is not final, found by the small indexes above: no index of its own to pay for.
CREATE VIEW active_run AS
    SELECT * FROM run WHERE state = 'SCHEDULED'
    UNION ALL SELECT * FROM run WHERE state = 'BLOCKED'
    UNION ALL SELECT * FROM run WHERE state = 'QUEUED'
    UNION ALL SELECT * FROM run WHERE state IN ('CLAIMED', 'PROCESSING')
    UNION ALL SELECT * FROM run WHERE state = 'UNKNOWN';

-- Jobs as they are now, with where their schedule stands and how their newest run went.
CREATE VIEW current_job AS
    SELECT job.*, job_version.document, job_version.digest, schedule.next_at, schedule.held_from,
        schedule.anchor, schedule.waits, schedule.version AS schedule_version,
        (SELECT state FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT 1) AS last_state,
        (SELECT ended_at FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT 1) AS last_ended_at
    FROM job
    JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
    JOIN schedule ON schedule.job_id = job.id
    WHERE job.deleted_at IS NULL;

-- Attempts that were followed by another; the latest one is carried by its run.
CREATE TABLE attempt (
    run_id       TEXT NOT NULL,
    number       INTEGER NOT NULL,
    session      TEXT NOT NULL,
    worker       TEXT NOT NULL,
    result       TEXT NOT NULL,
    claimed_at   INTEGER NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER NOT NULL,
    exit_code    INTEGER,
    signal       INTEGER,
    message      TEXT NOT NULL,
    steps        TEXT,
    cpu_seconds  REAL NOT NULL,
    max_memory   INTEGER NOT NULL,
    output       BLOB,
    output_state TEXT NOT NULL,
    output_bytes INTEGER NOT NULL,
    output_lines INTEGER NOT NULL,
    truncated    INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

-- Reports that came after their lease had ended.
CREATE TABLE late_result (
    run_id      TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    session     TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    result      TEXT NOT NULL,
    message     TEXT NOT NULL,
    PRIMARY KEY (run_id, attempt, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE output_chunk (
    run_id     TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    session    TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    lines      INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    key        TEXT NOT NULL,
    PRIMARY KEY (run_id, attempt, number)
) STRICT, WITHOUT ROWID;

-- Due times that got no run, as stretches. Runs and single skips are rows of `run`.
CREATE TABLE unanswered (
    job_id  TEXT NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    state   TEXT NOT NULL,
    cause   TEXT NOT NULL,
    PRIMARY KEY (job_id, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE calendar (
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    document   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;

-- Which calendars the schedules of jobs use.
CREATE TABLE calendar_use (
    job_id   TEXT NOT NULL,
    calendar TEXT NOT NULL,
    project  TEXT NOT NULL,
    PRIMARY KEY (job_id, calendar)
) STRICT, WITHOUT ROWID;
CREATE INDEX calendar_users ON calendar_use (project, calendar);

-- Due times of the past that somebody wanted to run; the runs name their backfill.
CREATE TABLE backfill (
    id           TEXT PRIMARY KEY,
    job_id       TEXT NOT NULL,
    max_parallel INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    runs         INTEGER NOT NULL,
    first        INTEGER, -- due times of its runs
    last         INTEGER,
    skipped      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX backfill_job ON backfill (job_id);

-- id is pool/priority/share.
CREATE TABLE chain (
    id       TEXT PRIMARY KEY,
    pool     TEXT NOT NULL,
    priority INTEGER NOT NULL,
    share    TEXT NOT NULL,
    weight   REAL NOT NULL DEFAULT 1,
    tag      REAL NOT NULL,
    active   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX chain_active ON chain (pool, priority, tag) WHERE active = 1;

-- The distinct demands of runs on a worker: {"needs": {…}, "function": "…"}.
CREATE TABLE shape (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE pool (
    name   TEXT PRIMARY KEY,
    served INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    id            TEXT PRIMARY KEY,
    worker        TEXT NOT NULL,
    pool          TEXT NOT NULL,
    slots         INTEGER NOT NULL,
    labels        TEXT NOT NULL,
    functions     TEXT NOT NULL,
    guard_mode    TEXT NOT NULL,
    version       TEXT NOT NULL,
    lease         INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    beats         INTEGER NOT NULL DEFAULT 0,
    alive         INTEGER NOT NULL DEFAULT 1,
    stopping      INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX session_alive ON session (pool) WHERE alive = 1;

CREATE TABLE event (
    seq     INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    project TEXT NOT NULL,
    ids     TEXT NOT NULL,
    data    TEXT NOT NULL
) STRICT;

-- How many runs of each job ended in each state, ever.
CREATE TABLE tally (
    job   TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job, state)
) STRICT, WITHOUT ROWID;

-- How late runs that have ended had started, ever: a histogram.
CREATE TABLE start_delay (
    pool    TEXT NOT NULL,
    up_to   REAL NOT NULL, -- seconds: the upper bound of the bucket
    count   INTEGER NOT NULL,
    seconds REAL NOT NULL, -- all of them together
    PRIMARY KEY (pool, up_to)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    key        TEXT PRIMARY KEY,
    digest     TEXT NOT NULL,
    answer     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    digest       TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL,
    parent       TEXT, -- a session ends with the token that opened it
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT, WITHOUT ROWID;
