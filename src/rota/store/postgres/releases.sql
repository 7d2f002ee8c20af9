-- name: waiting_runs
-- Runs that wait on this key and that nobody else is about to change, oldest first.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND seq > :after ORDER BY seq LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

-- name: waiting_triggered_runs
-- The same, without those that a schedule asked for.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND trigger <> 'schedule' AND seq > :after
ORDER BY seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: eligible_runs
-- Runs whose time has come and that nobody else is about to change.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape, previous_due, release_at
FROM run WHERE state = 'SCHEDULED' AND eligible_at <= :now
ORDER BY eligible_at, seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: bound_wait
-- So long a run may wait where it is.
UPDATE run SET drop_at = least(run.drop_at, bound.drop_at)
FROM unnest(:drop_at::bigint[], :id::text[]) AS bound (drop_at, id)
WHERE run.id = bound.id AND coalesce(run.state, '') = 'BLOCKED';
