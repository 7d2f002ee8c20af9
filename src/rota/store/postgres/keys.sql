-- name: promise_key
-- A run that was let through to the queue will take so much of a key.
INSERT INTO run_key (key, seq, amount)
SELECT new.key, run.seq, new.amount
FROM unnest(:key::text[], :amount::bigint[], :id::text[]) AS new (key, amount, id)
JOIN run ON run.id = new.id
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
FROM unnest(:seq::bigint[], :key::text[], :reasons::text[], :eligible_at::bigint[])
    AS short (seq, key, reasons, eligible_at)
WHERE run.seq = short.seq AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
RETURNING run.id, run.project, run.chain;

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

-- name: forget_kept_keys
-- Some of what is kept no more.
DELETE FROM kept_key WHERE key IN (SELECT key FROM kept_key
    WHERE until <= :now ORDER BY until LIMIT :limit FOR UPDATE SKIP LOCKED);
