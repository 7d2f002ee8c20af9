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
ON CONFLICT (job_id) DO UPDATE SET next_at = excluded.next_at, anchor = excluded.anchor,
    held_from = excluded.held_from, version = schedule.version + 1;

-- name: delete_jobs
-- Take jobs out of service; history stays.
UPDATE job SET deleted_at = :now, updated_at = :now WHERE id = ANY(:ids) AND deleted_at IS NULL
RETURNING id, name, project;

-- name: delete_schedules
-- A deleted job is never due again.
DELETE FROM schedule WHERE job_id = ANY(:ids);

-- name: move_schedule
-- Pause, resume, enable or disable, if nobody else moved the schedule meanwhile.
UPDATE schedule SET next_at = :next_at, held_from = :held_from, version = version + 1
WHERE job_id = :id AND version = :expected;

-- name: set_job_flags
-- Whether a job is enabled and paused.
UPDATE job SET enabled = :enabled, paused = :paused, paused_by = :paused_by, updated_at = :now
WHERE id = :id AND deleted_at IS NULL;

-- name: select_jobs
-- Jobs with where their schedule stands and how their newest run went.
SELECT job.*, job_version.document, job_version.digest, schedule.next_at, schedule.held_from,
    schedule.anchor, schedule.version AS schedule_version,
    (SELECT run.state FROM run WHERE run.job_id = job.id ORDER BY run.seq DESC LIMIT 1) AS last_state,
    (SELECT run.ended_at FROM run WHERE run.job_id = job.id ORDER BY run.seq DESC LIMIT 1) AS last_ended_at
FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
JOIN schedule ON schedule.job_id = job.id
WHERE job.project = :project AND job.deleted_at IS NULL AND job.name > :after_name
    AND (:any_name OR job.name = ANY(:names))
    AND (:any_id OR job.id = ANY(:ids))
    AND (:name_like IS NULL OR job.name LIKE :name_like ESCAPE '\')
    AND (:set_name IS NULL OR job.set_name = :set_name)
ORDER BY job.name LIMIT :limit;

-- name: select_documents
-- What versions of jobs say.
SELECT job_id, version, document FROM job_version WHERE job_id = ANY(:ids);

-- name: select_rules
-- The rules of all versions of these jobs.
SELECT job_id, version, rules FROM job_version WHERE job_id = ANY(:ids);

-- name: job_flags
-- What the gates need to know of jobs.
SELECT id, name, version, enabled, paused, deleted_at, expected_seconds FROM job WHERE id = ANY(:ids);

-- name: set_expected_seconds
-- The moving average of a job's durations.
UPDATE job SET expected_seconds = :seconds WHERE id = :id;

-- name: select_ledger_runs
-- The runs that a schedule asked for.
SELECT id, due_at, state, cause FROM run
WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until
ORDER BY due_at LIMIT :limit;

-- name: select_unanswered
-- The stretches of due times without runs.
SELECT first, last, count, state, cause FROM unanswered
WHERE job_id = :job AND last >= :since AND first <= :until
ORDER BY first LIMIT :limit;
