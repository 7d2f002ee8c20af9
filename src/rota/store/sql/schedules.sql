-- name: due_schedules
-- Schedules of these shards with a due time before the given one, soonest first.
SELECT schedule.job_id, schedule.next_at, schedule.version AS schedule_version, schedule.anchor,
    schedule.shard, job.version AS job_version
FROM schedule JOIN job ON job.id = schedule.job_id
WHERE schedule.next_at IS NOT NULL AND schedule.next_at < :before
    AND schedule.shard = ANY(:shards)
ORDER BY schedule.next_at LIMIT :limit;

-- name: free_gates
-- The gates of these jobs that nobody else holds, locked.
SELECT job_id FROM schedule WHERE job_id = ANY(:ids);

-- name: claimed_schedules
-- Where these schedules stand, locked.
SELECT job_id, next_at, held_from, answered_to, version FROM schedule WHERE job_id = ANY(:ids);

-- name: advance_schedule
-- Move a schedule on from the due time that was answered.
UPDATE schedule SET next_at = :next_at, waits = :waits,
    answered_to = CASE WHEN answered_to < :answered_to THEN :answered_to ELSE answered_to END
WHERE job_id = :id AND next_at = :claimed AND version = :version;

-- name: insert_unanswered
-- A stretch of due times that got no run; it lengthens the one that it goes on from. Should one
-- begin at the same due time, the two are one: what has its answer keeps it, and none is lost.
INSERT INTO unanswered (job_id, first, last, count, state, cause)
SELECT CAST(:job AS TEXT), coalesce((SELECT before.first FROM (
        SELECT first, last, state, cause FROM unanswered
        WHERE job_id = :job AND first <= :previous ORDER BY first DESC LIMIT 1) AS before
    WHERE before.last = :previous AND before.state = :state AND before.cause = :cause), :first),
    CAST(:last AS BIGINT), CAST(:count AS BIGINT), :state, :cause
WHERE true
ON CONFLICT (job_id, first) DO UPDATE SET
    last = CASE WHEN unanswered.last < excluded.last THEN excluded.last ELSE unanswered.last END,
    count = CASE WHEN unanswered.last = :previous THEN unanswered.count + excluded.count
        WHEN unanswered.count < excluded.count THEN excluded.count ELSE unanswered.count END;

-- name: ended_waits
-- Schedules whose latest run has ended, which is what their next due time depends on.
SELECT schedule.job_id, schedule.version AS schedule_version, schedule.anchor,
    job.version AS job_version, run.ended_at
FROM schedule
JOIN job ON job.id = schedule.job_id
JOIN run ON run.seq = (SELECT max(seq) FROM run
    WHERE run.job_id = schedule.job_id AND run.trigger = 'schedule')
WHERE schedule.waits = 1 AND schedule.next_at IS NULL AND schedule.held_from IS NULL
    AND run.ended_at IS NOT NULL
LIMIT :limit;

-- name: awaited_jobs
-- Which of these jobs somebody waits for the runs of: their own schedules, or jobs that follow them.
SELECT job_id, waits, is_followed FROM (
    SELECT schedule.job_id, schedule.waits, coalesce((SELECT 1 FROM job
        JOIN dependency ON dependency.project = job.project AND dependency.upstream = job.name
        WHERE job.id = schedule.job_id LIMIT 1), 0) AS is_followed
    FROM schedule WHERE schedule.job_id = ANY(:ids)) AS awaited
WHERE waits = 1 OR is_followed = 1;

-- name: rearm_schedule
-- The due time after a run that has ended; held while the job is paused or disabled.
UPDATE schedule SET waits = 0, version = schedule.version + 1,
    next_at = CASE WHEN job.enabled = 1 AND job.paused = 0 THEN CAST(:next_at AS BIGINT) END,
    held_from = CASE WHEN job.enabled = 1 AND job.paused = 0 THEN NULL ELSE CAST(:next_at AS BIGINT) END
FROM job
WHERE job.id = schedule.job_id AND schedule.job_id = :id AND schedule.version = :version
    AND waits = 1 AND next_at IS NULL AND held_from IS NULL;

-- name: finish_jobs
-- A job that was to run once has fired.
UPDATE job SET finished_at = :now WHERE id = ANY(:ids);
