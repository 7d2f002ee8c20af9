-- name: waiters
-- The oldest runs that wait on a key.
SELECT id FROM run WHERE state = 'BLOCKED' AND blocked_on = :key ORDER BY seq LIMIT :limit;

-- name: queue_run
-- Every gate passed.
-- many: now bigint, id text
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL, queued_at = :now,
    gate_job = job_id
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED');

-- name: block_run
-- A gate holds it.
-- many: key text, reasons text, id text
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons, eligible_at = NULL,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: end_waiting_run
-- A waiting run ends without an attempt: skipped, missed, cancelled or past its deadline.
-- many: state text, cause text, now bigint, id text
UPDATE run SET state = :state, cause = :cause, ended_at = :now, blocked_on = NULL, reasons = NULL,
    eligible_at = NULL
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: request_cancel
-- Ask live runs to stop.
UPDATE run SET cancel_at = :now, cancel_by = :actor
WHERE id = ANY(:ids) AND state IN ('CLAIMED', 'PROCESSING') AND cancel_at IS NULL;

-- name: dropped_runs
-- Waiting runs that may not start any more, so late is it.
SELECT id, job_id, drop_at, late_at FROM run
WHERE drop_at IS NOT NULL AND drop_at <= :now AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
ORDER BY drop_at LIMIT :limit;

-- name: judge_lateness
-- Whether runs missed their objective, once that can be told. What ended before, without a start,
-- did not.
UPDATE run SET is_late = CASE WHEN coalesce(first_started_at, ended_at) <= late_at THEN 0 ELSE 1 END
WHERE seq IN (SELECT seq FROM run WHERE late_at IS NOT NULL AND is_late IS NULL AND late_at < :now
    ORDER BY late_at LIMIT :limit)
RETURNING id, job, is_late;

-- name: waiting_runs_to_change
-- What decisions about runs that wait need, locked.
-- postgres: ORDER BY id FOR NO KEY UPDATE
SELECT id, seq, job_id, job_version, state, trigger, blocked_on, chain, pool, priority, release_at,
    eligible_at, late_at, backfill, keys
FROM run WHERE id = ANY(:ids);

-- name: let_run_go
-- A run passes the gates again.
-- many: eligible_at bigint, drop_at bigint, id text
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL, eligible_at = :eligible_at,
    drop_at = :drop_at
WHERE id = :id AND state = 'BLOCKED';

-- name: unfit_keys
-- What runs wait for that no worker could ever take, each with one of these runs.
WITH RECURSIVE waited (key) AS (
    SELECT min(blocked_on) FROM run
    WHERE state = 'BLOCKED' AND blocked_on > 'worker:' AND blocked_on < 'worker;'
    UNION ALL SELECT (SELECT min(run.blocked_on) FROM run
        WHERE run.state = 'BLOCKED' AND run.blocked_on > waited.key AND run.blocked_on < 'worker;')
    FROM waited WHERE waited.key IS NOT NULL)
SELECT waited.key, run.pool, run.shape FROM waited JOIN run ON run.seq = (SELECT min(head.seq) FROM run AS head
    WHERE head.state = 'BLOCKED' AND head.blocked_on = waited.key);
