-- Several servers on one store: who they are, and which shards of the schedules each one fires.

CREATE TABLE server (
    id         TEXT PRIMARY KEY, -- one life of a server process
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,
    roles      TEXT NOT NULL,
    zone       TEXT NOT NULL,
    version    TEXT NOT NULL,
    lease      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    stopping   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE shard (
    number   INTEGER PRIMARY KEY,
    owner    TEXT, -- a server; NULL: nobody
    epoch    INTEGER NOT NULL DEFAULT 0, -- how often it was taken: the fence of its owner
    taken_at INTEGER
) STRICT;
INSERT INTO shard (number)
WITH RECURSIVE numbers (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number FROM numbers;

-- Which server a worker talks to, and how often it connected anew: the fence of that server.
ALTER TABLE session ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN stream INTEGER NOT NULL DEFAULT 1;

-- Workers that shall finish what they hold and get nothing new, by name: it outlives a restart.
CREATE TABLE drained_worker (
    name       TEXT PRIMARY KEY,
    drained_by TEXT NOT NULL,
    drained_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The only pool that a worker with this token may serve; NULL: any, or not a worker's token.
ALTER TABLE token ADD COLUMN pool TEXT;

-- The latest due time that has its answer, perhaps one to come that is skipped: it only grows.
ALTER TABLE schedule ADD COLUMN answered_to INTEGER NOT NULL DEFAULT 0;
UPDATE schedule SET answered_to = coalesce(
    (SELECT max(last) FROM unanswered WHERE unanswered.job_id = schedule.job_id), 0);

-- Whether the misfire policy promises that the run comes about: no other of its job is in its way.
ALTER TABLE run ADD COLUMN caught_up INTEGER NOT NULL DEFAULT 0;

DROP VIEW current_job;
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

-- What ended attempts printed and is still on its worker: found when that session is over.
CREATE INDEX run_output_pending ON run (session) WHERE output_state = 'pending';
CREATE INDEX attempt_output_pending ON attempt (session) WHERE output_state = 'pending';
