-- Instants are microseconds since 1970, UTC. JSON is text. Flags are 0 or 1. What is compared and
-- sorted is so by its bytes, whatever the language of the database.

CREATE TABLE meta (
    key   TEXT COLLATE "C" PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE job (
    id               TEXT COLLATE "C" PRIMARY KEY,
    project          TEXT COLLATE "C" NOT NULL,
    name             TEXT COLLATE "C" NOT NULL,
    version          INTEGER NOT NULL,
    shard            INTEGER NOT NULL,
    set_name         TEXT COLLATE "C" NOT NULL,
    created_by       TEXT COLLATE "C" NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    enabled          INTEGER NOT NULL,
    paused           INTEGER NOT NULL DEFAULT 0,
    paused_by        TEXT NOT NULL DEFAULT '',
    paused_until     BIGINT,
    finished_at      BIGINT,
    deleted_at       BIGINT,
    expected_seconds DOUBLE PRECISION,
    stuck_since      BIGINT -- since when its runs wait in vain, and somebody was told
);
CREATE INDEX job_stuck ON job (stuck_since) WHERE stuck_since IS NOT NULL;
CREATE INDEX job_pause ON job (paused_until) WHERE paused_until IS NOT NULL;
CREATE UNIQUE INDEX job_name ON job (project, name) WHERE deleted_at IS NULL;

CREATE TABLE job_version (
    job_id     TEXT COLLATE "C" NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    rules      TEXT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (job_id, version)
);

-- Apart from `job`, so that the rows the scheduler moves stay few bytes wide.
CREATE TABLE schedule (
    job_id    TEXT COLLATE "C" PRIMARY KEY,
    shard     INTEGER NOT NULL,
    next_at   BIGINT,
    held_from BIGINT,
    anchor    BIGINT NOT NULL,
    version   INTEGER NOT NULL,
    waits     INTEGER NOT NULL DEFAULT 0, -- its next due time depends on the end of its latest run
    -- The latest due time that has its answer, perhaps one to come that is skipped: it only grows.
    answered_to BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_waiting ON schedule (job_id) WHERE waits = 1;

CREATE TABLE run (
    seq              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id               TEXT COLLATE "C" NOT NULL UNIQUE,
    project          TEXT COLLATE "C" NOT NULL,
    job_id           TEXT COLLATE "C" NOT NULL,
    job              TEXT COLLATE "C" NOT NULL,
    job_version      INTEGER NOT NULL,
    trigger          TEXT COLLATE "C" NOT NULL,
    state            TEXT COLLATE "C" NOT NULL,
    cause            TEXT NOT NULL DEFAULT '',
    message          TEXT NOT NULL DEFAULT '',
    due_at           BIGINT NOT NULL,
    release_at       BIGINT NOT NULL,
    eligible_at      BIGINT,
    deadline_at      BIGINT,
    late_at          BIGINT, -- a later start misses the job's objective
    drop_at          BIGINT, -- a later start does not happen
    is_late          INTEGER, -- whether the objective was missed; NULL: not judged yet
    priority         INTEGER NOT NULL,
    pool             TEXT COLLATE "C" NOT NULL,
    chain            TEXT COLLATE "C" NOT NULL,
    shape            TEXT COLLATE "C" NOT NULL,
    delivery         TEXT COLLATE "C" NOT NULL,
    max_attempts     INTEGER NOT NULL,
    attempt          INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    losses           INTEGER NOT NULL DEFAULT 0,
    session          TEXT COLLATE "C",
    capacity         DOUBLE PRECISION NOT NULL DEFAULT 0, -- fraction of the pool that the attempt was charged for
    expected         DOUBLE PRECISION NOT NULL,
    blocked_on       TEXT COLLATE "C",
    reasons          TEXT,
    inputs           TEXT,
    outputs          TEXT,
    progress         TEXT,
    created_by       TEXT COLLATE "C" NOT NULL,
    created_at       BIGINT NOT NULL,
    queued_at        BIGINT,
    claimed_at       BIGINT,
    started_at       BIGINT,
    first_started_at BIGINT,
    ended_at         BIGINT,
    cancel_at        BIGINT,
    cancel_by        TEXT NOT NULL DEFAULT '',
    exit_code        BIGINT,
    signal           BIGINT,
    retry_of         TEXT COLLATE "C",
    backfill         TEXT COLLATE "C",
    -- Whether the misfire policy promises that the run comes about: no other of its job is in its way.
    caught_up        INTEGER NOT NULL DEFAULT 0,
    -- The job, while the run counts at its gates (overlap, max_concurrency); else NULL.
    gate_job         TEXT COLLATE "C",
    -- How the latest attempt ended; earlier attempts are rows of `attempt`.
    result           TEXT COLLATE "C",
    steps            TEXT,
    cpu_seconds      DOUBLE PRECISION NOT NULL DEFAULT 0,
    max_memory       BIGINT NOT NULL DEFAULT 0,
    output           BYTEA,
    output_state     TEXT COLLATE "C" NOT NULL DEFAULT 'none',
    output_bytes     BIGINT NOT NULL DEFAULT 0,
    output_lines     BIGINT NOT NULL DEFAULT 0,
    truncated        INTEGER NOT NULL DEFAULT 0
);
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
-- What ended attempts printed and is still on its worker: found when that session is over.
CREATE INDEX run_output_pending ON run (session) WHERE output_state = 'pending';

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
        schedule.anchor, schedule.waits, schedule.answered_to,
        schedule.version AS schedule_version,
        (SELECT state FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT 1) AS last_state,
        (SELECT ended_at FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT 1) AS last_ended_at
    FROM job
    JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
    JOIN schedule ON schedule.job_id = job.id
    WHERE job.deleted_at IS NULL;

-- Attempts that were followed by another; the latest one is carried by its run.
CREATE TABLE attempt (
    run_id       TEXT COLLATE "C" NOT NULL,
    number       INTEGER NOT NULL,
    session      TEXT COLLATE "C" NOT NULL,
    worker       TEXT COLLATE "C" NOT NULL,
    result       TEXT COLLATE "C" NOT NULL,
    claimed_at   BIGINT NOT NULL,
    started_at   BIGINT,
    ended_at     BIGINT NOT NULL,
    exit_code    BIGINT,
    signal       BIGINT,
    message      TEXT NOT NULL,
    steps        TEXT,
    cpu_seconds  DOUBLE PRECISION NOT NULL,
    max_memory   BIGINT NOT NULL,
    output       BYTEA,
    output_state TEXT COLLATE "C" NOT NULL,
    output_bytes BIGINT NOT NULL,
    output_lines BIGINT NOT NULL,
    truncated    INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
);
CREATE INDEX attempt_output_pending ON attempt (session) WHERE output_state = 'pending';

-- Reports that came after their lease had ended.
CREATE TABLE late_result (
    run_id      TEXT COLLATE "C" NOT NULL,
    attempt     INTEGER NOT NULL,
    session     TEXT COLLATE "C" NOT NULL,
    received_at BIGINT NOT NULL,
    result      TEXT COLLATE "C" NOT NULL,
    message     TEXT NOT NULL,
    PRIMARY KEY (run_id, attempt, session)
);

CREATE TABLE output_chunk (
    run_id     TEXT COLLATE "C" NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    session    TEXT COLLATE "C" NOT NULL,
    first_line BIGINT NOT NULL,
    lines      BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    first_at   BIGINT NOT NULL,
    last_at    BIGINT NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, attempt, number)
);

-- Due times that got no run, as stretches. Runs and single skips are rows of `run`.
CREATE TABLE unanswered (
    job_id  TEXT COLLATE "C" NOT NULL,
    first   BIGINT NOT NULL,
    last    BIGINT NOT NULL,
    count   BIGINT NOT NULL,
    state   TEXT COLLATE "C" NOT NULL,
    cause   TEXT NOT NULL,
    PRIMARY KEY (job_id, first)
);

CREATE TABLE calendar (
    project    TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    document   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_by TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (project, name)
);

-- Which calendars the schedules of jobs use.
CREATE TABLE calendar_use (
    job_id   TEXT COLLATE "C" NOT NULL,
    calendar TEXT COLLATE "C" NOT NULL,
    project  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id, calendar)
);
CREATE INDEX calendar_users ON calendar_use (project, calendar);

-- Due times of the past that somebody wanted to run; the runs name their backfill.
CREATE TABLE backfill (
    id           TEXT COLLATE "C" PRIMARY KEY,
    job_id       TEXT COLLATE "C" NOT NULL,
    max_parallel INTEGER NOT NULL,
    created_by   TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,
    runs         INTEGER NOT NULL,
    first        BIGINT, -- due times of its runs
    last         BIGINT,
    skipped      TEXT NOT NULL
);
CREATE INDEX backfill_job ON backfill (job_id);

-- id is pool/priority/share.
CREATE TABLE chain (
    id       TEXT COLLATE "C" PRIMARY KEY,
    pool     TEXT COLLATE "C" NOT NULL,
    priority INTEGER NOT NULL,
    share    TEXT COLLATE "C" NOT NULL,
    weight   DOUBLE PRECISION NOT NULL DEFAULT 1,
    tag      DOUBLE PRECISION NOT NULL,
    active   INTEGER NOT NULL
);
-- Not by tag, which every claim moves: so a claim adds nothing to the index.
CREATE INDEX chain_active ON chain (pool, priority) WHERE active = 1;

-- The distinct demands of runs on a worker: {"needs": {…}, "function": "…"}.
CREATE TABLE shape (
    id TEXT COLLATE "C" PRIMARY KEY
);

CREATE TABLE pool (
    name   TEXT COLLATE "C" PRIMARY KEY,
    served BIGINT NOT NULL
);

CREATE TABLE session (
    id            TEXT COLLATE "C" PRIMARY KEY,
    worker        TEXT COLLATE "C" NOT NULL,
    pool          TEXT COLLATE "C" NOT NULL,
    slots         INTEGER NOT NULL,
    labels        TEXT NOT NULL,
    functions     TEXT NOT NULL,
    guard_mode    TEXT COLLATE "C" NOT NULL,
    version       TEXT COLLATE "C" NOT NULL,
    lease         BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    beats         BIGINT NOT NULL DEFAULT 0,
    alive         INTEGER NOT NULL DEFAULT 1,
    stopping      INTEGER NOT NULL DEFAULT 0,
    server        TEXT COLLATE "C" NOT NULL DEFAULT '', -- the one that the worker talks to
    stream        INTEGER NOT NULL DEFAULT 1 -- how often it connected: the fence of that server
);
CREATE INDEX session_alive ON session (pool) WHERE alive = 1;

CREATE TABLE event (
    seq     BIGINT PRIMARY KEY, -- the transaction's number and, in the last 16 bits, which of its events
    kind    TEXT COLLATE "C" NOT NULL,
    at      BIGINT NOT NULL,
    actor   TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    ids     TEXT NOT NULL,
    data    TEXT NOT NULL
);

-- How many runs of each job ended in each state, ever.
CREATE TABLE tally (
    job   TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (job, state)
);

-- How late runs that have ended had started, ever: a histogram.
CREATE TABLE start_delay (
    pool    TEXT COLLATE "C" NOT NULL,
    up_to   DOUBLE PRECISION NOT NULL, -- seconds: the upper bound of the bucket
    count   BIGINT NOT NULL,
    seconds DOUBLE PRECISION NOT NULL, -- all of them together
    PRIMARY KEY (pool, up_to)
);

CREATE TABLE idempotency (
    key        TEXT COLLATE "C" PRIMARY KEY,
    digest     TEXT COLLATE "C" NOT NULL,
    answer     TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE token (
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT COLLATE "C" NOT NULL,
    role         TEXT COLLATE "C" NOT NULL,
    digest       TEXT COLLATE "C" NOT NULL UNIQUE,
    kind         TEXT COLLATE "C" NOT NULL,
    parent       TEXT COLLATE "C", -- a session ends with the token that opened it
    created_by   TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    revoked_at   BIGINT,
    pool         TEXT COLLATE "C" -- the only one that a worker with it may serve; NULL: any
);

CREATE TABLE server (
    id         TEXT COLLATE "C" PRIMARY KEY, -- one life of a server process
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,
    roles      TEXT NOT NULL,
    zone       TEXT NOT NULL,
    version    TEXT NOT NULL,
    lease      BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    stopping   INTEGER NOT NULL DEFAULT 0
);

-- Which schedules each server fires.
CREATE TABLE shard (
    number   INTEGER PRIMARY KEY,
    owner    TEXT COLLATE "C", -- a server; NULL: nobody
    epoch    BIGINT NOT NULL DEFAULT 0, -- how often it was taken: the fence of its owner
    taken_at BIGINT
);
INSERT INTO shard (number) SELECT generate_series(0, 255);

-- Workers that shall finish what they hold and get nothing new, by name: it outlives a restart.
CREATE TABLE drained_worker (
    name       TEXT COLLATE "C" PRIMARY KEY,
    drained_by TEXT NOT NULL,
    drained_at BIGINT NOT NULL
);
