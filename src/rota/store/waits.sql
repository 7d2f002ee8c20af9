-- name: waiters
-- The oldest runs that wait on a key.
SELECT id FROM run WHERE state = 'BLOCKED' AND blocked_on = :key ORDER BY seq LIMIT :limit;

-- name: queue_runs
-- Every gate passed. Whether these runs count at the gates of their jobs from now on is given.
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL, queued_at = :now,
    gate_job = CASE WHEN :counts = 1 THEN job_id END
WHERE seq = ANY(:seqs) AND state IN ('SCHEDULED', 'BLOCKED');

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
SELECT id, job_id, drop_at, late_at, blocked_on FROM run
WHERE drop_at IS NOT NULL AND drop_at <= :now AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
ORDER BY drop_at LIMIT :limit;

-- name: judge_lateness
-- Whether runs missed their objective, once that can be told. What ended before, without a start,
-- did not.
UPDATE run SET is_late = CASE WHEN coalesce(first_started_at, ended_at) <= late_at THEN 0 ELSE 1 END
WHERE seq IN (SELECT seq FROM run WHERE late_at IS NOT NULL AND is_late IS NULL AND late_at < :now
    ORDER BY late_at LIMIT :limit)
RETURNING id, project, job, is_late;

-- name: waiting_runs_to_change
-- What decisions about runs that wait need, locked.
-- postgres: ORDER BY id FOR NO KEY UPDATE
SELECT id, seq, project, job_id, job_version, state, trigger, blocked_on, chain, pool, priority, keys
FROM run WHERE id = ANY(:ids);

-- name: let_runs_go
-- Runs pass the gates again, once it is their time. How long they might wait where they were is over; whether
-- they are dropped when it is too late to start is given.
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL,
    eligible_at = CASE WHEN coalesce(eligible_at, 0) > :now AND coalesce(eligible_at, 0) > release_at THEN eligible_at
        WHEN release_at > :now THEN release_at ELSE :now END,
    drop_at = CASE WHEN :drops = 1 THEN late_at END
WHERE seq = ANY(:seqs) AND state = 'BLOCKED';

-- name: leave_ends
-- Those of these runs that ended as somebody follows their job.
INSERT INTO upstream_end (run_id, project, job, ended_at, state)
SELECT run.id, run.project, run.job, run.ended_at, run.state FROM run
WHERE run.id = ANY(:ids) AND run.trigger <> 'probe' AND EXISTS (SELECT 1 FROM dependency
    WHERE dependency.project = run.project AND dependency.upstream = run.job
    AND CASE dependency.ends WHEN 'completed' THEN run.state = 'COMPLETED'
        WHEN 'failed' THEN run.state IN ('FAILED', 'TIMED_OUT')
        ELSE run.state IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'CANCELLED') END)
ON CONFLICT (run_id) DO NOTHING RETURNING run_id;

-- name: rules_of_carts
-- The rules of carts.
SELECT id, rules FROM cart WHERE id = ANY(:ids);

-- name: stranded_runs
-- The runs of such items.
-- postgres: FOR NO KEY UPDATE OF run SKIP LOCKED
SELECT run.id, run.seq, run.project, run.job_id, run.state, run.trigger, run.cart, run.chain, run.pool, run.priority,
    run.created_at, run.keys, run.shape
FROM cart_item JOIN run ON run.id = cart_item.run
WHERE coalesce(cart_item.state, '') = 'OPEN' AND cart_item.worker > '' AND run.state = 'QUEUED'
    AND NOT EXISTS (SELECT 1 FROM session
        WHERE session.worker = cart_item.worker AND session.alive = 1 AND session.pool = run.pool)
ORDER BY run.id LIMIT :limit;

-- name: look_at_external
-- Somebody wants these runs to end: a server looks at them now.
UPDATE external_attempt SET look_at = :now WHERE run_id = ANY(:ids) AND look_at > :now;
