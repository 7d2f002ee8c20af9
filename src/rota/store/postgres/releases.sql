-- name: bound_wait
-- So long a run may wait where it is.
UPDATE run SET drop_at = least(run.drop_at, bound.drop_at)
FROM unnest(:drop_at::bigint[], :id::text[]) AS bound (drop_at, id)
WHERE run.id = bound.id AND coalesce(run.state, '') = 'BLOCKED';

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
