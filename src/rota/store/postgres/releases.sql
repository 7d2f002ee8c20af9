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

-- name: waiting_runs
-- Runs that wait on this key, oldest first, found between two ends and sorted by both columns of their index: by
-- age alone, PostgreSQL may go through all runs there ever were.
SELECT id, seq, project, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority,
    created_at, keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on >= :key AND blocked_on <= :key AND seq > :after
ORDER BY blocked_on, seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: waiting_triggered_runs
-- The same, without those that a schedule asked for.
SELECT id, seq, project, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority,
    created_at, keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on >= :key AND blocked_on <= :key AND seq > :after AND trigger <> 'schedule'
ORDER BY blocked_on, seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: waited_jobs
-- Those of these jobs that have a run waiting for them or for its turn in a backfill of theirs. The first run that
-- waits on a key is asked for, not whether there is one: for that PostgreSQL may read all that wait, or all runs.
SELECT job.id, job.name, job.paused, job.paused_until, job.deleted_at, job.expected_seconds, job.created_at,
    job_version.rules,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds
FROM job JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.id = ANY(:ids) AND (
    (SELECT run.seq FROM run
        WHERE run.state = 'BLOCKED' AND run.blocked_on >= 'job:' || job.id AND run.blocked_on <= 'job:' || job.id
        ORDER BY run.blocked_on, run.seq LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT FROM backfill WHERE backfill.job_id = job.id AND (SELECT run.seq FROM run
        WHERE run.state = 'BLOCKED' AND run.blocked_on >= 'backfill:' || backfill.id
            AND run.blocked_on <= 'backfill:' || backfill.id
        ORDER BY run.blocked_on, run.seq LIMIT 1) IS NOT NULL))
ORDER BY job.id;

-- name: waited_backfills
-- The backfills of a job in which at least one run waits for its turn, the oldest first.
SELECT id, max_parallel FROM backfill
WHERE job_id = :job AND (SELECT run.seq FROM run
    WHERE run.state = 'BLOCKED' AND run.blocked_on >= 'backfill:' || backfill.id
        AND run.blocked_on <= 'backfill:' || backfill.id
    ORDER BY run.blocked_on, run.seq LIMIT 1) IS NOT NULL
ORDER BY created_at, id;
