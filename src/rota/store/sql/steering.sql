-- name: waiting_runs_to_change
-- What decisions about runs that wait need, locked.
SELECT id, seq, job_id, job_version, state, trigger, blocked_on, chain, pool, priority, release_at,
    eligible_at, late_at, backfill, keys
FROM run WHERE id = ANY(:ids);

-- name: hold_run
-- Somebody holds it. A time that had not come, as that of the next attempt, is still to be waited for.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons,
    eligible_at = CASE WHEN state = 'SCHEDULED' THEN eligible_at END,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: let_run_go
-- A run passes the gates again.
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL, eligible_at = :eligible_at,
    drop_at = :drop_at
WHERE id = :id AND state = 'BLOCKED';

-- name: bound_wait
-- So long a run may wait where it is.
UPDATE run SET drop_at = CASE WHEN drop_at < :drop_at THEN drop_at ELSE :drop_at END
WHERE id = :id AND state = 'BLOCKED';

-- name: set_priority
-- A run that waits stands in another line.
UPDATE run SET priority = :priority, chain = :chain
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

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

-- name: crew
-- The workers that a pool has or had a moment ago, by what they can do.
SELECT labels, functions, slots, resources FROM session WHERE pool = :pool AND alive = 1
UNION SELECT labels, functions, slots, resources FROM session
WHERE pool = :pool AND alive = 0 AND expires_at > :since AND expires_at - lease > :since;
