-- name: jobs_by_name
-- The live jobs of these names, locked for a change.
SELECT id, project, name, version FROM job
WHERE project = :project AND name = ANY(:names) AND deleted_at IS NULL;

-- name: insert_job
-- A new job.
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at, enabled)
VALUES (:id, :project, :name, 1, :shard, :set_name, :actor, :now, :now, :enabled);

-- name: update_job
-- A new version of a job, if it is still at the expected one.
UPDATE job SET version = version + 1, set_name = :set_name, updated_at = :now, enabled = :enabled,
    finished_at = CASE WHEN :restarts THEN NULL ELSE finished_at END
WHERE id = :id AND version = :expected AND deleted_at IS NULL;

-- name: insert_job_version
-- What a version of a job says.
INSERT INTO job_version (job_id, version, document, digest, rules, created_by, created_at)
VALUES (:id, :version, :document, :digest, :rules, :actor, :now);

-- name: upsert_schedule
-- Where the schedule of a saved job stands.
INSERT INTO schedule (job_id, shard, next_at, anchor, held_from, version)
VALUES (:id, :shard, :next_at, :anchor, :held_from, 1)
ON CONFLICT (job_id) DO UPDATE SET anchor = excluded.anchor, version = schedule.version + 1,
    next_at = CASE WHEN :moves THEN excluded.next_at ELSE schedule.next_at END,
    held_from = CASE WHEN :moves THEN excluded.held_from ELSE schedule.held_from END,
    waits = CASE WHEN :restarts THEN 0 ELSE schedule.waits END;

-- name: delete_jobs
-- Take jobs out of service; history stays.
UPDATE job SET deleted_at = :now, updated_at = :now WHERE id = ANY(:ids) AND deleted_at IS NULL
RETURNING id, name, project;

-- name: delete_schedules
-- A deleted job is never due again.
DELETE FROM schedule WHERE job_id = ANY(:ids);

-- name: move_schedule
-- Pause, resume, enable, disable or skip, if the schedule has neither been moved nor fired meanwhile.
UPDATE schedule SET next_at = :next_at, held_from = :held_from, version = version + 1
WHERE job_id = :id AND version = :expected AND coalesce(next_at, -1) = coalesce(:expected_next_at, -1);

-- name: set_job_flags
-- Whether a job is enabled and paused.
UPDATE job SET enabled = :enabled, paused = :paused, paused_until = :paused_until, updated_at = :now,
    paused_by = CASE WHEN :paused = 0 THEN '' WHEN paused = 1 THEN paused_by ELSE :actor END
WHERE id = :id AND deleted_at IS NULL;

-- name: select_jobs
-- Jobs in order of their names.
SELECT * FROM current_job
WHERE project = :project AND name > :after_name
    AND (:name_like IS NULL OR name LIKE :name_like ESCAPE '\')
    AND (:set_name IS NULL OR set_name = :set_name)
ORDER BY name LIMIT :limit;

-- name: select_jobs_by_id
-- These jobs.
SELECT * FROM current_job WHERE id = ANY(:ids) AND coalesce(project, '') = :project;

-- name: select_jobs_by_name
-- The jobs of these names.
SELECT * FROM current_job WHERE name = ANY(:names) AND project = :project;

-- name: ended_pauses
-- Jobs whose pause was to last until now.
SELECT * FROM current_job WHERE paused = 1 AND paused_until IS NOT NULL AND paused_until <= :now
LIMIT :limit;

-- name: next_pause_end
-- When the next pause ends by itself.
SELECT min(paused_until) AS ends_at FROM job
WHERE paused_until > :now AND paused = 1 AND deleted_at IS NULL;

-- name: select_documents
-- What versions of jobs say.
SELECT job_id, version, document FROM job_version WHERE job_id = ANY(:ids);

-- name: select_rules
-- The rules of these versions of these jobs, in every combination there is.
SELECT job_id, version, rules FROM job_version WHERE job_id = ANY(:ids) AND version = ANY(:versions);

-- name: job_gates
-- What the gates need to know of jobs.
SELECT job.id, job.name, job.paused, job.paused_until, job.deleted_at, job.expected_seconds,
    job_version.rules
FROM job JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.id = ANY(:ids);

-- name: waited_jobs
-- The same, of those jobs that have a run waiting for them.
SELECT job.id, job.name, job.paused, job.paused_until, job.deleted_at, job.expected_seconds,
    job_version.rules
FROM job JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.id = ANY(:ids) AND EXISTS (SELECT 1 FROM run
    WHERE run.state = 'BLOCKED' AND run.blocked_on = 'job:' || job.id)
ORDER BY job.id;

-- name: expected_durations
-- The moving averages of the durations of jobs.
SELECT id, expected_seconds FROM job WHERE id = ANY(:ids);

-- name: set_expected_seconds
-- The moving average of a job's durations.
UPDATE job SET expected_seconds = :seconds WHERE id = :id;
