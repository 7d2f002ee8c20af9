-- name: waiters
-- The oldest runs that wait on a key, found between two ends and sorted by both columns of their index.
SELECT id FROM run WHERE state = 'BLOCKED' AND blocked_on >= :key AND blocked_on <= :key
ORDER BY blocked_on, seq LIMIT :limit;

-- name: judge_lateness
-- Whether runs missed their objective, once that can be told. What ended before, without a start,
-- did not.
UPDATE run SET is_late = CASE WHEN coalesce(first_started_at, ended_at) <= late_at THEN 0 ELSE 1 END
WHERE seq IN (SELECT seq FROM run WHERE late_at IS NOT NULL AND is_late IS NULL AND late_at < :now
    ORDER BY late_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, job, is_late;

-- name: queue_run
-- Every gate passed.
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL,
    queued_at = free.now, gate_job = job_id
FROM unnest(:now::bigint[], :id::text[]) AS free (now, id)
WHERE run.id = free.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED');

-- name: block_run
-- A gate holds it.
UPDATE run SET state = 'BLOCKED', blocked_on = held.key, reasons = held.reasons, eligible_at = NULL,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
FROM unnest(:key::text[], :reasons::text[], :id::text[]) AS held (key, reasons, id)
WHERE run.id = held.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: end_waiting_run
-- A waiting run ends without an attempt: skipped, missed, cancelled or past its deadline.
UPDATE run SET state = over.state, cause = over.cause, ended_at = over.now, blocked_on = NULL,
    reasons = NULL, eligible_at = NULL
FROM unnest(:state::text[], :cause::text[], :now::bigint[], :id::text[])
    AS over (state, cause, now, id)
WHERE run.id = over.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: waiting_runs_to_change
-- What decisions about runs that wait need, locked.
SELECT id, seq, job_id, job_version, state, trigger, blocked_on, chain, pool, priority, release_at,
    eligible_at, late_at, backfill, keys
FROM run WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;

-- name: let_run_go
-- A run passes the gates again.
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL, eligible_at = free.eligible_at,
    drop_at = free.drop_at
FROM unnest(:eligible_at::bigint[], :drop_at::bigint[], :id::text[]) AS free (eligible_at, drop_at, id)
WHERE run.id = free.id AND coalesce(run.state, '') = 'BLOCKED';

-- name: unfit_keys
-- What runs wait for that no worker could ever take, each with one of these runs. From key to key, sorted
-- by both columns of their index: it leads, and is read no further than needed.
WITH RECURSIVE waited (key, pool, shape) AS (
    (SELECT blocked_on, pool, shape FROM run
    WHERE state = 'BLOCKED' AND blocked_on > 'worker:' AND blocked_on < 'worker;'
    ORDER BY blocked_on, seq LIMIT 1)
    UNION ALL SELECT next.blocked_on, next.pool, next.shape FROM waited CROSS JOIN LATERAL (
        SELECT run.blocked_on, run.pool, run.shape FROM run
        WHERE run.state = 'BLOCKED' AND run.blocked_on > waited.key AND run.blocked_on < 'worker;'
        ORDER BY run.blocked_on, run.seq LIMIT 1) AS next)
SELECT key, pool, shape FROM waited;
