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
