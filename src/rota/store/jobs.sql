-- name: live_job
-- The live job of this name. One at a time: for a list PostgreSQL may go through the whole project.
SELECT id FROM job WHERE project = :project AND name = :name AND deleted_at IS NULL;

-- name: insert_job
-- A new job.
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at, enabled)
VALUES (:id, :project, :name, 1, :shard, :set_name, :actor, :now, :now, :enabled);

-- name: update_job
-- A new version of a job, if it is still at the expected one.
UPDATE job SET version = version + 1, set_name = :set_name, updated_at = :now, enabled = :enabled,
    finished_at = CASE WHEN :restarts = 1 THEN NULL ELSE finished_at END
WHERE id = :id AND version = :expected AND deleted_at IS NULL;

-- name: insert_job_version
-- What a version of a job says.
INSERT INTO job_version (job_id, version, document, digest, rules, created_by, created_at)
VALUES (:id, :version, :document, :digest, :rules, :actor, :now);

-- name: upsert_schedule
-- Where the schedule of a saved job stands.
INSERT INTO schedule (job_id, shard, next_at, anchor, held_from, answered_to, version)
VALUES (:id, :shard, :next_at, :anchor, :held_from, :answered_to, 1)
ON CONFLICT (job_id) DO UPDATE SET anchor = excluded.anchor, version = schedule.version + 1,
    next_at = CASE WHEN :moves = 1 THEN excluded.next_at ELSE schedule.next_at END,
    held_from = CASE WHEN :moves = 1 THEN excluded.held_from ELSE schedule.held_from END,
    waits = CASE WHEN :restarts = 1 THEN 0 ELSE schedule.waits END,
    answered_to = CASE WHEN schedule.answered_to < excluded.answered_to THEN excluded.answered_to
        ELSE schedule.answered_to END;

-- name: delete_jobs
-- Take jobs out of service; history stays.
UPDATE job SET deleted_at = :now, updated_at = :now WHERE id = ANY(:ids) AND deleted_at IS NULL
RETURNING id, name, project;

-- name: delete_schedules
-- A deleted job is never due again. The row stays: it is the gate of runs that are still to finish.
UPDATE schedule SET next_at = NULL, held_from = NULL, waits = 0, version = version + 1
WHERE job_id = ANY(:ids);

-- name: move_schedule
-- Pause, resume, enable, disable or skip, if the schedule has neither been moved nor fired meanwhile.
UPDATE schedule SET next_at = :next_at, held_from = :held_from, version = version + 1,
    answered_to = CASE WHEN answered_to < :answered_to THEN :answered_to ELSE answered_to END
WHERE job_id = :id AND version = :expected
    AND coalesce(next_at, -1) = coalesce(CAST(:expected_next_at AS BIGINT), -1);

-- name: set_job_flags
-- Whether a job is enabled and paused.
UPDATE job SET enabled = :enabled, paused = :paused, paused_until = :paused_until, updated_at = :now,
    paused_by = CASE WHEN :paused = 0 THEN '' WHEN paused = 1 THEN paused_by ELSE :actor END
WHERE id = :id AND deleted_at IS NULL;

-- name: select_jobs
-- Jobs in order of their names.
SELECT * FROM current_job
WHERE project = :project AND name > :after_name
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (CAST(:set_name AS TEXT) IS NULL OR set_name = :set_name)
ORDER BY name LIMIT :limit;

-- name: select_jobs_of_projects
-- Jobs of some projects, or of all, in order of these and of their names.
SELECT * FROM current_job
WHERE (project, name) > (:after_project, :after_name)
    AND (:any_project = 1 OR project = ANY(:projects))
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (CAST(:set_name AS TEXT) IS NULL OR set_name = :set_name)
ORDER BY project, name LIMIT :limit;

-- name: select_jobs_of_user
-- Jobs that one user made, in some projects or all, in order of these and of their names.
SELECT * FROM current_job
WHERE created_by = :created_by AND (project, name) > (:after_project, :after_name)
    AND (:any_project = 1 OR coalesce(project, '') = ANY(:projects))
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (CAST(:set_name AS TEXT) IS NULL OR set_name = :set_name)
ORDER BY project, name LIMIT :limit;

-- name: select_jobs_by_id
-- These jobs.
SELECT * FROM current_job WHERE id = ANY(:ids) AND coalesce(project, '') = :project;

-- name: select_jobs_by_name
-- The jobs of these names.
SELECT * FROM current_job WHERE name = ANY(:names) AND project = :project;

-- name: names_of_jobs
-- Names of jobs, those with the first letter of another name before the others.
SELECT name FROM job WHERE project = :project AND deleted_at IS NULL
ORDER BY CASE WHEN lower(substr(name, 1, 1)) = lower(substr(:like, 1, 1)) THEN 0 ELSE 1 END, name
LIMIT :limit;

-- name: deleted_job
-- The job of this name or id that was deleted last; as `current_job` shows those that were not.
SELECT job.*, job_version.document, job_version.digest, schedule.next_at, schedule.held_from,
    schedule.anchor, schedule.waits, schedule.answered_to, schedule.version AS schedule_version,
    (SELECT state FROM run WHERE job_id = job.id AND trigger <> 'probe' ORDER BY seq DESC LIMIT 1) AS last_state,
    (SELECT ended_at FROM run WHERE job_id = job.id AND trigger <> 'probe' ORDER BY seq DESC LIMIT 1) AS last_ended_at
FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
JOIN schedule ON schedule.job_id = job.id
WHERE job.project = :project AND (job.name = :name OR job.id = :name) AND job.deleted_at IS NOT NULL
ORDER BY job.deleted_at DESC LIMIT 1;

-- name: last_runs
-- The newest run of each of these jobs that has ended or is with a worker, past those that only wait.
SELECT job.id AS job_id, run.state, run.ended_at
FROM job JOIN run ON run.seq = (SELECT past.seq FROM run AS past
    WHERE past.job_id = job.id AND past.state NOT IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
    AND past.trigger <> 'probe' ORDER BY past.seq DESC LIMIT 1)
WHERE job.id = ANY(:ids);

-- name: select_jobs_by_calendar
-- The jobs whose schedules use a calendar.
SELECT * FROM current_job WHERE id IN (SELECT job_id FROM calendar_use
    WHERE project = :project AND calendar = :calendar);

-- name: select_documents
-- What versions of jobs say.
SELECT job_id, version, document FROM job_version WHERE job_id = ANY(:ids);

-- name: count_at_gate
-- Runs of jobs that got a limit count from now on, if they hold a slot.
UPDATE run SET gate_job = job_id
WHERE gate_job IS NULL AND seq IN (SELECT seq FROM active_run WHERE coalesce(job_id, '') = ANY(:ids)
    AND state IN ('QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN'));

-- name: projects_of_jobs
-- Where these jobs are.
SELECT id, project FROM job WHERE id = ANY(:ids);

-- name: waiting_runs_of_paused_jobs
-- What the pause of these jobs holds.
SELECT id FROM active_run
WHERE coalesce(job_id, '') IN (SELECT job.id FROM job WHERE job.id = ANY(:ids) AND job.paused = 1)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');
