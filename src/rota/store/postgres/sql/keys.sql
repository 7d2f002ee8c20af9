-- Whoever looks for runs that wait for a key skips those that others are about to change.

-- name: hold_declaration
-- A declaration that is to change or to go, locked.
SELECT kind, document FROM declaration WHERE kind = :kind AND project = :project AND name = :name FOR UPDATE;

-- name: begin_rekeying
-- Something was declared for all runs of a project.
INSERT INTO rekeying (project, since, after)
SELECT new.project, new.since, 0 FROM unnest(:project::text[], :now::bigint[]) AS new (project, since)
ORDER BY project
ON CONFLICT (project) DO UPDATE SET since = excluded.since, after = 0;

-- name: runs_to_rekey
-- What tells the keys of these runs, as far as they are not final, locked.
SELECT seq, state, job_id, job_version, inputs, keys, CASE WHEN trigger IN ('schedule', 'after')
    THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE created_by END AS asker
FROM run WHERE seq = ANY(:seqs) AND coalesce(state, '')
    IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
ORDER BY id FOR NO KEY UPDATE;

-- name: set_run_keys
-- Which keys a run takes.
UPDATE run SET keys = new.keys FROM unnest(:keys::text[], :seq::bigint[]) AS new (keys, seq)
WHERE run.seq = new.seq;

-- name: users_of_resource
-- Jobs that use a named resource now.
SELECT job.name FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = :project AND job.deleted_at IS NULL
    AND job_version.rules::jsonb -> 'uses' ? CAST(:name AS TEXT)
ORDER BY job.name LIMIT :limit;

-- name: hold_shared_keys
-- How full the buckets of these keys were, locked: one transaction at a time takes of them.
SELECT key, level, at FROM shared_key WHERE key = ANY(:keys) ORDER BY key FOR NO KEY UPDATE;

-- name: add_shared_key
-- A key that somebody takes for the first time; locked, whoever was first.
INSERT INTO shared_key (key) SELECT key FROM unnest(:key::text[]) AS new (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET key = excluded.key;

-- name: set_bucket
-- How full a bucket is now.
UPDATE shared_key SET level = taken.level, at = taken.at
FROM unnest(:level::float8[], :at::bigint[], :key::text[]) AS taken (level, at, key)
WHERE shared_key.key = taken.key;

-- name: charge_key
-- Attempts that have ended used so much of a key.
INSERT INTO key_charge (key, at, seq, amount)
SELECT * FROM unnest(:key::text[], :now::bigint[], :seq::bigint[], :amount::bigint[])
ON CONFLICT (key, at, seq) DO UPDATE SET amount = key_charge.amount + excluded.amount;

-- name: forget_shared_keys
-- Those of these keys of which nobody has or wants anything: it is as if they had never been used.
DELETE FROM shared_key WHERE key IN (SELECT key FROM shared_key
    WHERE key = ANY(:keys) AND level IS NULL
        AND NOT EXISTS (SELECT 1 FROM run_key WHERE run_key.key = shared_key.key)
    ORDER BY key FOR UPDATE SKIP LOCKED);

-- name: promise_key
-- A run that was let through to the queue will take so much of a key.
INSERT INTO run_key (key, seq, amount)
SELECT new.key, run.seq, new.amount
FROM unnest(:key::text[], :amount::bigint[], :id::text[]) AS new (key, amount, id)
JOIN run ON run.id = new.id
ON CONFLICT (key, seq) DO UPDATE SET amount = excluded.amount;

-- name: hold_key
-- A claimed run has so much of a key.
INSERT INTO run_key (key, seq, amount)
SELECT * FROM unnest(:key::text[], :seq::bigint[], :amount::bigint[])
ON CONFLICT (key, seq) DO UPDATE SET amount = excluded.amount;

-- name: queued_for_key
-- The oldest of those in the queue that will take of a key.
SELECT run.id, run.seq, run.priority, run.created_at, run.keys FROM run_key JOIN run ON run.seq = run_key.seq
WHERE run_key.key = :key AND coalesce(run.state, '') = 'QUEUED' ORDER BY run_key.seq LIMIT :limit
FOR NO KEY UPDATE OF run SKIP LOCKED;

-- name: run_key_page
-- Who has or may take keys, from a place on.
SELECT page.key, page.seq, run.state FROM (SELECT key, seq FROM run_key
    WHERE (key, seq) > (:after_key, :after_seq) ORDER BY key, seq LIMIT :limit) AS page
LEFT JOIN run ON run.seq = page.seq ORDER BY page.key, page.seq;

-- name: forget_run_keys
-- Of these runs, those that have nothing, wait for no worker, and are not about to.
DELETE FROM run_key WHERE key = ANY(:keys) AND seq IN (SELECT seq FROM run
    WHERE seq = ANY(:seqs) AND coalesce(state, '') NOT IN ('QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    FOR NO KEY UPDATE SKIP LOCKED);

-- name: block_on_keys
-- These runs wait for keys that are short.
UPDATE run SET state = 'BLOCKED', blocked_on = short.key, reasons = short.reasons,
    eligible_at = short.eligible_at, gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
FROM json_to_recordset(CAST(:runs AS TEXT)::json)
    AS short (seq bigint, key text, reasons text, eligible_at bigint)
WHERE run.seq = short.seq AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
RETURNING run.id, run.chain;

-- name: key_waiters
-- The first and the last of those who wait for a key, of each of its priorities.
SELECT DISTINCT wanted.key, ends.*
FROM json_to_recordset(CAST(:keys AS TEXT)::json) AS wanted (key text, priority integer)
CROSS JOIN LATERAL (
    (SELECT priority, seq, created_at, eligible_at FROM run
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on >= wanted.key AND blocked_on <= wanted.key
            AND priority <= wanted.priority
        ORDER BY blocked_on, priority DESC, seq LIMIT 1)
    UNION ALL
    (SELECT priority, seq, created_at, eligible_at FROM run
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on >= wanted.key AND blocked_on <= wanted.key
            AND priority >= wanted.priority
        ORDER BY blocked_on DESC, priority, seq DESC LIMIT 1)) AS ends;

-- name: keep_key
-- So much of a key is kept for a run from now on, and for nobody else any more.
INSERT INTO kept_key (key, seq, amount, until, waits_for)
SELECT * FROM unnest(:key::text[], :seq::bigint[], :amount::bigint[], :until::bigint[], :waits_for::text[])
    AS new (key) ORDER BY key
ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, amount = excluded.amount, until = excluded.until,
    waits_for = excluded.waits_for;

-- name: forget_kept_keys
-- Some of what is kept no more.
DELETE FROM kept_key WHERE key IN (SELECT key FROM kept_key
    WHERE until <= :now ORDER BY until LIMIT :limit FOR UPDATE SKIP LOCKED);

-- name: key_candidates
-- The first of those who wait for each of these keys, from each of these priorities down.
SELECT wanted.key, waiting.*
FROM json_to_recordset(CAST(:keys AS TEXT)::json) AS wanted (key text, priority integer)
CROSS JOIN LATERAL (SELECT id, seq, run.priority, created_at, job_id, cart FROM run
    WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on >= wanted.key AND blocked_on <= wanted.key
        AND run.priority <= wanted.priority
    ORDER BY blocked_on, run.priority DESC, seq LIMIT :limit) AS waiting;

-- name: key_waiters_to_release
-- Those of these runs that still wait for one of these keys.
SELECT * FROM run
WHERE id = ANY(:ids) AND coalesce(state, '') = 'BLOCKED' AND coalesce(blocked_on, '') = ANY(:keys)
FOR NO KEY UPDATE SKIP LOCKED;
