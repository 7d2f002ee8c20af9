-- name: free_gates
-- The gates of these jobs that nobody else holds, locked.
SELECT job_id FROM schedule WHERE job_id = ANY(:ids) ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED;

-- name: claimed_schedules
-- Where these schedules stand, locked: whoever is just about to move one is waited for, and seen.
SELECT job_id, next_at, held_from, answered_to, version FROM schedule WHERE job_id = ANY(:ids)
ORDER BY job_id FOR NO KEY UPDATE;

-- name: advance_schedule
-- Move a schedule on from the due time that was answered. It is found by its key: very many schedules
-- have the same due time, and going through them for each of these would take its square.
UPDATE schedule SET next_at = move.next_at, waits = move.waits,
    answered_to = greatest(schedule.answered_to, move.answered_to)
FROM unnest(:next_at::bigint[], :waits::integer[], :answered_to::bigint[], :id::text[],
    :claimed::bigint[], :version::integer[])
    AS move (next_at, waits, answered_to, id, claimed, version)
WHERE schedule.job_id = move.id AND schedule.next_at IS NOT DISTINCT FROM move.claimed
    AND schedule.version = move.version;

-- name: set_expected_seconds
-- The moving average of a job's durations. A job that somebody else is changing learns another time.
UPDATE job SET expected_seconds = learned.seconds
FROM unnest(:seconds::float8[], :id::text[]) AS learned (seconds, id)
WHERE job.id = learned.id AND job.id IN (SELECT free.id FROM job AS free
    WHERE free.id = ANY(:id::text[]) FOR NO KEY UPDATE SKIP LOCKED);

-- name: begin_stuck
-- Jobs of which somebody has to be told that they are stuck; one that is changing, another time.
UPDATE job SET stuck_since = :now WHERE id IN (SELECT id FROM job
    WHERE id = ANY(:ids) AND stuck_since IS NULL FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id;

-- name: end_stuck
-- Jobs that were stuck and are not among these, which still hold runs back.
UPDATE job SET stuck_since = NULL WHERE id IN (SELECT id FROM job
    WHERE stuck_since IS NOT NULL AND NOT id = ANY(:ids) FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id;
