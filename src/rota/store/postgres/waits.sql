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
