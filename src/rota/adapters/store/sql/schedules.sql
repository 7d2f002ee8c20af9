-- name: due_schedules
-- Schedules with a due time before the given one, soonest first.
SELECT schedule.job_id, schedule.next_at, schedule.version AS schedule_version, schedule.anchor,
    job.version AS job_version
FROM schedule JOIN job ON job.id = schedule.job_id
WHERE schedule.next_at IS NOT NULL AND schedule.next_at < :before
ORDER BY schedule.next_at LIMIT :limit;

-- name: claimed_schedules
-- Where these schedules stand, locked.
SELECT job_id, next_at, version FROM schedule WHERE job_id = ANY(:ids);

-- name: advance_schedule
-- Move a schedule on from the due time that was answered.
UPDATE schedule SET next_at = :next_at WHERE job_id = :id AND next_at = :claimed AND version = :version;

-- name: insert_unanswered
-- A stretch of due times that got no run.
INSERT INTO unanswered (job_id, first, last, count, state, cause)
VALUES (:job, :first, :last, :count, :state, :cause)
ON CONFLICT DO NOTHING;

-- name: finish_jobs
-- A job that was to run once has fired.
UPDATE job SET finished_at = :now WHERE id = ANY(:ids);
