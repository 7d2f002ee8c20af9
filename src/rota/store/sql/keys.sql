-- Keys that runs share, and what people declare about them. A row of run_key counts by the state of its
-- run: QUEUED, it may take the key soon; live, it holds it. Where one key may have many waiters, they are
-- found from the front of their index.

-- name: select_declarations
-- Declarations of a project and a kind, or of all.
SELECT kind, project, name, document, updated_by, updated_at FROM declaration
WHERE (CAST(:project AS TEXT) IS NULL OR project = :project) AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
ORDER BY kind, project, name;

-- name: declarations_for_all
-- What is declared for every run of these projects, among others.
SELECT kind, document, project FROM declaration WHERE kind IN ('rate', 'quota') AND project = ANY(:projects)
ORDER BY kind, project, name;

-- name: declarations_of_keys
-- What is declared under these names, in every combination there is.
SELECT kind, project, name, document FROM declaration
WHERE kind = ANY(:kinds) AND project = ANY(:projects) AND name = ANY(:names);

-- name: changed_declarations
-- The latest of those that were made or changed after an instant.
SELECT kind, project, name, document FROM declaration WHERE updated_at > :since
ORDER BY updated_at DESC LIMIT :limit;

-- name: begin_rekeying
-- Something was declared for all runs of a project.
INSERT INTO rekeying (project, since, after) VALUES (:project, :now, 0)
ON CONFLICT (project) DO UPDATE SET since = excluded.since, after = 0;

-- name: rekeying
-- A project whose runs are to take keys that were declared after them.
SELECT project, since, after FROM rekeying ORDER BY project LIMIT 1;

-- name: active_seqs
-- Runs of a project that are not final, from one on.
SELECT seq FROM active_run WHERE coalesce(project, '') = :project AND seq > :after ORDER BY seq LIMIT :limit;

-- name: runs_to_rekey
-- What tells the keys of these runs, as far as they are not final.
SELECT seq, state, job_id, job_version, inputs, keys, CASE WHEN trigger IN ('schedule', 'after')
    THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE created_by END AS asker
FROM run WHERE seq = ANY(:seqs)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN');

-- name: set_run_keys
-- Which keys a run takes.
UPDATE run SET keys = :keys WHERE seq = :seq;

-- name: go_on_rekeying
-- So far it is done.
UPDATE rekeying SET after = :next_after WHERE project = :project AND since = :since AND after = :after;

-- name: end_rekeying
-- It is done.
DELETE FROM rekeying WHERE project = :project AND since = :since AND after = :after;

-- name: hold_declaration
-- A declaration that is to change or to go.
SELECT kind, document FROM declaration WHERE kind = :kind AND project = :project AND name = :name;

-- name: save_declaration
-- Create or replace it.
INSERT INTO declaration (kind, project, name, document, updated_by, updated_at)
VALUES (:kind, :project, :name, :document, :actor, :now)
ON CONFLICT (kind, project, name) DO UPDATE SET document = excluded.document,
    updated_by = excluded.updated_by, updated_at = excluded.updated_at;

-- name: delete_declaration
-- Forget it.
DELETE FROM declaration WHERE kind = :kind AND project = :project AND name = :name RETURNING name;

-- name: users_of_resource
-- Jobs that use a named resource now.
SELECT job.name FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = :project AND job.deleted_at IS NULL
    AND EXISTS (SELECT 1 FROM json_each(job_version.rules, '$.uses') WHERE json_each.key = :name)
ORDER BY job.name LIMIT :limit;

-- name: count_waiting
-- How many runs of a project wait, up to a limit.
SELECT count(*) AS runs FROM (SELECT 1 FROM active_run
    WHERE coalesce(project, '') = :project AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
    LIMIT :limit) AS waiting;

-- name: count_of_project
-- How many jobs a project has, and how many of its runs wait.
SELECT (SELECT count(*) FROM job WHERE project = :project AND deleted_at IS NULL) AS jobs,
    (SELECT count(*) FROM active_run WHERE coalesce(project, '') = :project
        AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')) AS waiting;

-- name: key_amounts
-- How much of these keys live runs hold, and how much those will take that came to the queue of late. A
-- run of which nobody knows whether it still runs keeps others with equal inputs away.
SELECT run_key.key,
    CAST(sum(CASE WHEN run.state = 'QUEUED' AND run.queued_at > :since THEN run_key.amount ELSE 0 END)
        AS BIGINT) AS queued,
    CAST(sum(CASE WHEN run.state IN ('CLAIMED', 'PROCESSING')
        OR (run.state = 'UNKNOWN' AND run_key.key LIKE 'exclusive:%') THEN run_key.amount ELSE 0 END)
        AS BIGINT) AS held
FROM run_key JOIN run ON run.seq = run_key.seq
WHERE run_key.key = ANY(:keys) GROUP BY run_key.key;

-- name: shared_keys
-- How full the buckets of these keys were.
SELECT key, level, at FROM shared_key WHERE key = ANY(:keys) AND level IS NOT NULL;

-- name: hold_shared_keys
-- The same of all of them; one transaction at a time takes of them.
SELECT key, level, at FROM shared_key WHERE key = ANY(:keys);

-- name: add_shared_key
-- A key that somebody takes for the first time.
INSERT INTO shared_key (key) VALUES (:key) ON CONFLICT (key) DO UPDATE SET key = excluded.key;

-- name: set_bucket
-- How full a bucket is now.
UPDATE shared_key SET level = :level, at = :at WHERE key = :key;

-- name: shared_key_page
-- Keys that somebody takes of, or is charged for, after one.
SELECT key FROM shared_key WHERE key > :after UNION SELECT key FROM key_charge WHERE key > :after
ORDER BY key LIMIT :limit;

-- name: drop_shared_keys
-- Keys that the transaction holds, and that stand as if they had never been used.
DELETE FROM shared_key WHERE key = ANY(:keys);

-- name: charge_key
-- Attempts that have ended used so much of a key.
INSERT INTO key_charge (key, at, seq, amount) VALUES (:key, :now, :seq, :amount)
ON CONFLICT (key, at, seq) DO UPDATE SET amount = key_charge.amount + excluded.amount;

-- name: key_charges
-- What is charged to these keys and was not taken out of their buckets yet.
SELECT key, at, amount FROM key_charge WHERE key = ANY(:keys) ORDER BY key, at, seq;

-- name: take_key_charges
-- The same, for good.
DELETE FROM key_charge WHERE key = ANY(:keys) RETURNING key, at, seq, amount;

-- name: forget_shared_keys
-- Those of these keys of which nobody has or wants anything: it is as if they had never been used.
DELETE FROM shared_key WHERE key = ANY(:keys) AND level IS NULL
    AND NOT EXISTS (SELECT 1 FROM run_key WHERE run_key.key = shared_key.key);

-- name: promise_key
-- A run that was let through to the queue will take so much of a key.
INSERT INTO run_key (key, seq, amount) SELECT :key, seq, :amount FROM run WHERE id = :id
ON CONFLICT (key, seq) DO UPDATE SET amount = excluded.amount;

-- name: hold_key
-- A claimed run has so much of a key.
INSERT INTO run_key (key, seq, amount) VALUES (:key, :seq, :amount)
ON CONFLICT (key, seq) DO UPDATE SET amount = excluded.amount;

-- name: queued_for_key
-- The oldest of those in the queue that will take of a key.
SELECT run.id, run.seq, run.priority, run.created_at, run.keys FROM run_key JOIN run ON run.seq = run_key.seq
WHERE run_key.key = :key AND run.state = 'QUEUED' ORDER BY run_key.seq LIMIT :limit;

-- name: drop_run_keys
-- What runs neither have nor may take any more.
DELETE FROM run_key WHERE key = ANY(:keys) AND seq = ANY(:seqs);

-- name: run_key_page
-- Who has or may take keys, from a place on.
SELECT page.key, page.seq, run.state FROM (SELECT key, seq FROM run_key
    WHERE key >= :after_key AND (key > :after_key OR seq > :after_seq)
    ORDER BY key, seq LIMIT :limit) AS page
LEFT JOIN run ON run.seq = page.seq ORDER BY page.key, page.seq;

-- name: forget_run_keys
-- Of these runs, those that have nothing and wait for no worker.
DELETE FROM run_key WHERE key = ANY(:keys) AND seq IN (SELECT seq FROM run
    WHERE seq = ANY(:seqs) AND state NOT IN ('QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN'));

-- name: block_on_keys
-- These runs wait for keys that are short.
UPDATE run SET state = 'BLOCKED', blocked_on = short.key, reasons = short.reasons,
    eligible_at = short.eligible_at, gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
FROM (SELECT value ->> 'seq' AS seq, value ->> 'key' AS key, value ->> 'reasons' AS reasons,
        value ->> 'eligible_at' AS eligible_at FROM json_each(:runs)) AS short
WHERE run.seq = short.seq AND run.state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
RETURNING run.id, run.chain;

-- name: key_waiters
-- The first and the last of those who wait for a key, of each of its priorities.
SELECT DISTINCT wanted.key, run.priority, run.seq, run.created_at, run.eligible_at
FROM (SELECT value ->> 'key' AS key, value ->> 'priority' AS priority FROM json_each(:keys)) AS wanted
JOIN run ON run.seq IN (
    (SELECT seq FROM run AS first
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on = wanted.key AND priority <= wanted.priority
        ORDER BY priority DESC, seq LIMIT 1),
    (SELECT seq FROM run AS last
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on = wanted.key AND priority >= wanted.priority
        ORDER BY priority, seq DESC LIMIT 1));

-- name: kept_keys
-- What is kept of these keys for runs that still wait for another one.
SELECT kept_key.key, kept_key.amount, kept_key.until, kept_key.waits_for, run.priority, run.created_at, run.seq
FROM kept_key JOIN run ON run.seq = kept_key.seq
WHERE kept_key.key = ANY(:keys) AND kept_key.until > :now
    AND coalesce(run.state, '') = 'BLOCKED' AND coalesce(run.blocked_on, '') = kept_key.waits_for;

-- name: keep_key
-- So much of a key is kept for a run from now on, and for nobody else any more.
INSERT INTO kept_key (key, seq, amount, until, waits_for) VALUES (:key, :seq, :amount, :until, :waits_for)
ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, amount = excluded.amount, until = excluded.until,
    waits_for = excluded.waits_for;

-- name: forget_kept_keys
-- Some of what is kept no more.
DELETE FROM kept_key WHERE key IN (SELECT key FROM kept_key WHERE until <= :now ORDER BY until LIMIT :limit);

-- name: waited_shared_keys
-- Keys between two ends that runs wait for, each found from the one before it.
WITH RECURSIVE waited (key) AS (
    SELECT (SELECT blocked_on FROM run
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on > :after AND blocked_on < :until
        ORDER BY blocked_on LIMIT 1)
    UNION ALL
    SELECT (SELECT blocked_on FROM run
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on > waited.key AND blocked_on < :until
        ORDER BY blocked_on LIMIT 1)
    FROM waited WHERE waited.key IS NOT NULL)
SELECT key FROM waited WHERE key IS NOT NULL LIMIT :limit;

-- name: due_keys
-- Keys for which the time of somebody who waits has come, the latest first.
SELECT DISTINCT due.key FROM (SELECT blocked_on AS key FROM run
    WHERE state = 'BLOCKED' AND keys IS NOT NULL AND eligible_at <= :now
        AND (blocked_on LIKE 'rate:%' OR blocked_on LIKE 'quota:%')
    ORDER BY eligible_at DESC LIMIT :limit) AS due;

-- name: next_key_at
-- When the next run that waits for tokens may go, of those whose time had not come before.
SELECT min(eligible_at) AS eligible_at FROM run
WHERE state = 'BLOCKED' AND keys IS NOT NULL AND eligible_at > :after;

-- name: key_candidates
-- The first of those who wait for each of these keys, from each of these priorities down.
SELECT wanted.key, run.id, run.seq, run.priority, run.created_at, run.job_id, run.cart
FROM (SELECT value ->> 'key' AS key, value ->> 'priority' AS priority FROM json_each(:keys)) AS wanted
JOIN run ON run.seq IN (SELECT waiting.seq FROM run AS waiting
    WHERE waiting.state = 'BLOCKED' AND waiting.keys IS NOT NULL AND waiting.blocked_on = wanted.key
        AND waiting.priority <= wanted.priority
    ORDER BY waiting.priority DESC, waiting.seq LIMIT :limit);

-- name: key_waiters_to_release
-- Those of these runs that still wait for one of these keys.
SELECT * FROM run
WHERE id = ANY(:ids) AND state = 'BLOCKED' AND coalesce(blocked_on, '') = ANY(:keys);

-- name: key_holders
-- Runs that hold these keys, as `key_amounts` counts them, the oldest of each first.
SELECT key, id FROM (SELECT run_key.key, run.id, run_key.seq,
        row_number() OVER (PARTITION BY run_key.key ORDER BY run_key.seq) AS place
    FROM run_key JOIN run ON run.seq = run_key.seq
    WHERE run_key.key = ANY(:keys) AND (coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
        OR (coalesce(run.state, '') = 'UNKNOWN' AND run_key.key LIKE 'exclusive:%'))) AS holder
WHERE place <= :limit ORDER BY key, place;

-- name: count_key_waiters
-- How many runs wait for each of these keys.
SELECT blocked_on AS key, count(*) AS runs FROM run
WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on = ANY(:keys) GROUP BY blocked_on;
