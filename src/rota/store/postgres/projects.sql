-- name: lock_projects
-- Projects that are to change.
SELECT FROM project WHERE name = ANY(:names) ORDER BY name FOR NO KEY UPDATE;

-- name: lock_every_project
-- All of them, before pools are given to some; who makes a new one waits, too (`default`).
SELECT FROM project ORDER BY name FOR NO KEY UPDATE;

-- name: lock_used_projects
-- Projects that must neither change nor go while something is saved in them.
SELECT FROM project WHERE name = ANY(:names) ORDER BY name FOR SHARE;

-- name: rules_of_pool
-- The same of the jobs that name a pool.
SELECT job.id, job.project, job_version.rules FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.deleted_at IS NULL AND job_version.rules::json ->> 'pool' = :pool;
