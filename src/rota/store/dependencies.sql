-- name: forget_dependencies
-- These jobs follow no other any more.
DELETE FROM dependency WHERE job_id = ANY(:ids);

-- name: insert_dependency
-- A job follows another one of its project.
INSERT INTO dependency (job_id, project, upstream, ends) VALUES (:job, :project, :upstream, :ends);

-- name: dependencies_of
-- Which jobs of a project follow which.
SELECT job.name, dependency.upstream FROM dependency JOIN job ON job.id = dependency.job_id
WHERE dependency.project = :project AND job.deleted_at IS NULL;

-- name: seed_completion
-- When a job was last completed, found among its newest runs: nobody has kept it until it is followed.
INSERT INTO completion (project, job, at)
SELECT CAST(:project AS TEXT), CAST(:upstream AS TEXT), max(newest.ended_at)
FROM (SELECT run.state, run.ended_at FROM run WHERE run.job_id = (SELECT job.id FROM job
        WHERE job.project = :project AND job.name = :upstream AND job.deleted_at IS NULL)
    AND run.trigger <> 'probe' ORDER BY run.seq DESC LIMIT 1000) AS newest
WHERE newest.state = 'COMPLETED' HAVING count(*) > 0
ON CONFLICT (project, job) DO UPDATE SET
    at = CASE WHEN completion.at < excluded.at THEN excluded.at ELSE completion.at END;

-- name: keep_completion
-- When a job was last completed that others follow.
INSERT INTO completion (project, job, at) VALUES (:project, :job, :at)
ON CONFLICT (project, job) DO UPDATE SET
    at = CASE WHEN completion.at < excluded.at THEN excluded.at ELSE completion.at END;

-- name: forget_completion
-- A job is gone; one of its name is another.
DELETE FROM completion WHERE project = :project AND job = :job;

-- name: any_upstream_end
-- One of the runs that are to be followed.
SELECT run_id FROM upstream_end LIMIT 1;

-- name: upstream_ends
-- Runs that are to be followed and that nobody else is about to follow.
-- postgres: FOR UPDATE SKIP LOCKED
SELECT run_id, project, job, ended_at, state FROM upstream_end ORDER BY run_id LIMIT :limit;

-- name: outputs_of
-- What these runs left for those that follow them.
SELECT id, outputs FROM run WHERE id = ANY(:ids);

-- name: artifacts_of
-- Files of these paths that the last attempts of runs left, in the order of their steps.
SELECT artifact.run_id, artifact.project, artifact.path, artifact.digest, artifact.size
FROM artifact JOIN run ON run.id = artifact.run_id AND run.attempt = artifact.attempt
WHERE artifact.run_id = ANY(:ids) AND artifact.path = ANY(:paths)
ORDER BY artifact.run_id, artifact.step;

-- name: tell_not_handed
-- Say of runs that were inserted as failed what they were not handed.
UPDATE run SET message = :message WHERE id = :id;

-- name: followers_of_run
-- The jobs that follow the job of a run.
SELECT dependency.job_id FROM run
JOIN dependency ON dependency.project = run.project AND dependency.upstream = run.job
WHERE run.id = :run ORDER BY dependency.job_id LIMIT :limit;

-- name: following_runs
-- Those of these runs that were made.
SELECT id, job, state FROM run WHERE id = ANY(:ids) ORDER BY seq;

-- name: forget_ends
-- Runs that were followed.
DELETE FROM upstream_end WHERE run_id = ANY(:ids);

-- name: followers
-- The jobs that follow others of a project, and under which rules.
SELECT dependency.upstream, job.id, job.version, job.enabled, job_version.rules
FROM dependency JOIN job ON job.id = dependency.job_id
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE dependency.project = :project AND dependency.upstream = ANY(:names)
    AND coalesce(job.deleted_at, 0) = 0
ORDER BY job.id;

-- name: waiters_of_keys
-- Runs that wait on one of these keys.
SELECT id, job_id FROM run WHERE state = 'BLOCKED' AND blocked_on = ANY(:keys) LIMIT :limit;

-- name: waiters_of_jobs
-- Due runs of these jobs that wait for the jobs which they follow.
SELECT id FROM run WHERE state = 'BLOCKED' AND blocked_on > 'after:' AND blocked_on < 'after;'
    AND coalesce(job_id, '') = ANY(:jobs);
