-- Keys that runs share, and what people declare about them. A row of run_key counts by the state of its
-- run: QUEUED, it may take the key soon; live, it holds it. Where one key may have many waiters, they are
-- found from the front of their index.

-- name: declarations_for_all
-- What is declared for every run of these projects, among others.
SELECT kind, document, project FROM declaration WHERE kind IN ('rate', 'quota') AND project = ANY(:projects)
ORDER BY kind, project, name;

-- name: declarations_of_keys
-- What is declared under these names, in every combination there is.
SELECT kind, project, name, document FROM declaration
WHERE kind = ANY(:kinds) AND project = ANY(:projects) AND name = ANY(:names);

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

-- name: shared_keys_to_take
-- The same of all of them; one transaction at a time takes of them.
-- postgres: ORDER BY key FOR NO KEY UPDATE
SELECT key, level, at FROM shared_key WHERE key = ANY(:keys);

-- name: add_shared_key
-- A key that somebody takes for the first time.
-- many: key text; ORDER BY key
INSERT INTO shared_key (key) VALUES (:key) ON CONFLICT (key) DO UPDATE SET key = excluded.key;

-- name: set_bucket
-- How full a bucket is now.
-- many: level float8, at bigint, key text
UPDATE shared_key SET level = :level, at = :at WHERE key = :key;

-- name: charge_key
-- Attempts that have ended used so much of a key.
-- many: key text, now bigint, seq bigint, amount bigint
INSERT INTO key_charge (key, at, seq, amount) VALUES (:key, :now, :seq, :amount)
ON CONFLICT (key, at, seq) DO UPDATE SET amount = key_charge.amount + excluded.amount;

-- name: key_charges
-- What is charged to these keys and was not taken out of their buckets yet.
SELECT key, at, amount FROM key_charge WHERE key = ANY(:keys) ORDER BY key, at, seq;

-- name: take_key_charges
-- The same, for good.
DELETE FROM key_charge WHERE key = ANY(:keys) RETURNING key, at, seq, amount;

-- name: promise_key
-- A run that was let through to the queue will take so much of a key.
INSERT INTO run_key (key, seq, amount) SELECT :key, seq, :amount FROM run WHERE id = :id
ON CONFLICT (key, seq) DO UPDATE SET amount = excluded.amount;

-- name: hold_key
-- A claimed run has so much of a key.
-- many: key text, seq bigint, amount bigint
INSERT INTO run_key (key, seq, amount) VALUES (:key, :seq, :amount)
ON CONFLICT (key, seq) DO UPDATE SET amount = excluded.amount;

-- name: queued_for_key
-- The oldest of those in the queue that will take of a key.
SELECT run.id, run.seq, run.priority, run.created_at, run.keys FROM run_key JOIN run ON run.seq = run_key.seq
WHERE run_key.key = :key AND run.state = 'QUEUED' ORDER BY run_key.seq LIMIT :limit;

-- name: drop_run_keys
-- What runs neither have nor may take any more.
DELETE FROM run_key WHERE key = ANY(:keys) AND seq = ANY(:seqs);

-- name: block_on_keys
-- These runs wait for keys that are short.
-- rows: seq, key, reasons, eligible_at
UPDATE run SET state = 'BLOCKED', blocked_on = short.key, reasons = short.reasons,
    eligible_at = short.eligible_at, gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
FROM (SELECT value ->> 0 AS seq, value ->> 1 AS key, value ->> 2 AS reasons,
        value ->> 3 AS eligible_at FROM json_each(:rows)) AS short
WHERE run.seq = short.seq AND run.state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
RETURNING run.id, run.project, run.chain;

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
-- many: key text, seq bigint, amount bigint, until bigint, waits_for text; ORDER BY key
INSERT INTO kept_key (key, seq, amount, until, waits_for) VALUES (:key, :seq, :amount, :until, :waits_for)
ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, amount = excluded.amount, until = excluded.until,
    waits_for = excluded.waits_for;

-- name: forget_kept_keys
-- Some of what is kept no more.
DELETE FROM kept_key WHERE key IN (SELECT key FROM kept_key WHERE until <= :now ORDER BY until LIMIT :limit);
