-- name: advance_schedule
-- Move a schedule on from the due time that was answered.
UPDATE schedule SET next_at = :next_at, waits = :waits,
    answered_to = CASE WHEN answered_to < :answered_to THEN :answered_to ELSE answered_to END
WHERE job_id = :id AND next_at = :claimed AND version = :version;

-- name: finish_jobs
-- A job that was to run once has fired.
UPDATE job SET finished_at = :now WHERE id = ANY(:ids) RETURNING id, project;

-- name: known_runs
-- Which of these ids exist.
SELECT id FROM run WHERE id = ANY(:ids);

-- name: claimed_schedules
-- Where these schedules stand, locked.
-- postgres: ORDER BY job_id FOR NO KEY UPDATE
SELECT job_id, next_at, held_from, answered_to, version FROM schedule WHERE job_id = ANY(:ids);
