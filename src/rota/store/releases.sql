-- name: waited_backfills
-- The backfills of a job in which at least one run waits for its turn, the oldest first.
SELECT id, max_parallel FROM backfill
WHERE job_id = :job AND EXISTS (SELECT 1 FROM run
    WHERE run.state = 'BLOCKED' AND run.blocked_on = 'backfill:' || backfill.id)
ORDER BY created_at, id;

-- name: paused_backfills
-- The backfills of runs that wait on this key.
SELECT DISTINCT backfill.id, backfill.max_parallel
FROM run JOIN backfill ON backfill.id = coalesce(run.backfill, '')
WHERE run.state = 'BLOCKED' AND run.blocked_on = :key ORDER BY backfill.id;

-- name: waited_jobs
-- The same, of those jobs that have a run waiting for them or for its turn in a backfill of theirs.
SELECT job.id, job.name, job.paused, job.paused_until, job.deleted_at, job.expected_seconds, job.created_at,
    job_version.rules,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds
FROM job JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.id = ANY(:ids) AND (
    EXISTS (SELECT 1 FROM run WHERE run.state = 'BLOCKED' AND run.blocked_on = 'job:' || job.id)
    OR EXISTS (SELECT 1 FROM backfill
        JOIN run ON run.state = 'BLOCKED' AND run.blocked_on = 'backfill:' || backfill.id
        WHERE backfill.job_id = job.id))
ORDER BY job.id;

-- name: waiting_runs
-- Runs that wait on this key, oldest first.
SELECT id, seq, project, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority,
    created_at, keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND seq > :after ORDER BY seq LIMIT :limit;

-- name: waiting_triggered_runs
-- The same, without those that a schedule asked for.
SELECT id, seq, project, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority,
    created_at, keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND trigger <> 'schedule' AND seq > :after
ORDER BY seq LIMIT :limit;

-- name: waited_keys
-- Keys after the given one that at least one run waits on.
SELECT DISTINCT blocked_on AS key FROM run WHERE state = 'BLOCKED' AND blocked_on > :after
ORDER BY blocked_on LIMIT :limit;

-- name: block_queued_runs
-- A gate holds what was queued of a job.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE state = 'QUEUED' AND coalesce(job_id, '') = :job AND trigger <> 'probe'
RETURNING id, project, chain;

-- name: tell_waiters
-- What these runs wait for has changed, such as the end of a pause.
UPDATE run SET reasons = :reasons WHERE state = 'BLOCKED' AND blocked_on = :key;

-- name: move_waiters
-- The gate that holds these runs is another one now.
UPDATE run SET blocked_on = :key, reasons = :reasons
WHERE state = 'BLOCKED' AND blocked_on = :old_key
    AND CASE WHEN trigger = 'schedule' THEN 1 ELSE 0 END = :is_scheduled
    AND coalesce(backfill, '') = :backfill;

-- name: overdue_runs
-- Waiting runs whose deadline has passed. While a cart holds a run, its time stands still.
SELECT id, job_id FROM run
WHERE deadline_at IS NOT NULL AND deadline_at <= :now AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
    AND coalesce(blocked_on, '') NOT LIKE 'cart:%'
ORDER BY deadline_at LIMIT :limit;

-- name: eligible_jobs
-- The jobs and carts of runs whose time has come, found between two ends: so PostgreSQL reads their index in
-- its order, and no further than needed.
SELECT DISTINCT job_id, cart FROM (SELECT job_id, cart FROM run
    WHERE state = 'SCHEDULED' AND eligible_at >= 0 AND eligible_at <= :now
    ORDER BY eligible_at, seq LIMIT :limit) AS eligible;

-- name: eligible_runs
-- These runs.
-- postgres: FOR NO KEY UPDATE SKIP LOCKED
SELECT id, seq, project, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority,
    created_at, keys, shape, previous_due, release_at
FROM run WHERE state = 'SCHEDULED' AND eligible_at >= 0 AND eligible_at <= :now
ORDER BY eligible_at, seq LIMIT :limit;

-- name: bound_wait
-- So long a run may wait where it is.
UPDATE run SET drop_at = CASE WHEN drop_at < :drop_at THEN drop_at ELSE :drop_at END
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

-- name: jobs_of_waiters
-- The jobs and carts of the oldest runs that wait on a key, found between two ends and sorted by both columns
-- of their index: it leads in PostgreSQL too, and is read no further than needed.
SELECT DISTINCT job_id, cart FROM (SELECT job_id, cart FROM run
    WHERE state = 'BLOCKED' AND blocked_on >= :key AND blocked_on <= :key
    ORDER BY blocked_on, seq LIMIT :limit) AS waiting;

-- name: waiters_to_release
-- These runs.
-- postgres: FOR NO KEY UPDATE SKIP LOCKED
SELECT id, seq, project, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority,
    created_at, keys, shape, previous_due, release_at
FROM run WHERE state = 'BLOCKED' AND blocked_on >= :key AND blocked_on <= :key
ORDER BY blocked_on, seq LIMIT :limit;

-- name: any_stranded
-- Whether an item is queued for a worker that is not there. What is open of fleets has an index of its own.
SELECT cart_item.run FROM cart_item JOIN run ON run.id = cart_item.run
WHERE coalesce(cart_item.state, '') = 'OPEN' AND cart_item.worker > '' AND run.state = 'QUEUED'
    AND NOT EXISTS (SELECT 1 FROM session
        WHERE session.worker = cart_item.worker AND session.alive = 1 AND session.pool = run.pool)
LIMIT 1;
