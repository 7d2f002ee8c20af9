-- name: latest_durations
-- How long the newest runs of jobs took that completed, in microseconds, as a list in a text.
SELECT id, (SELECT string_agg((ended_at - started_at)::TEXT, ',') FROM (SELECT state, started_at, ended_at
    FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT :looked_at) AS newest
    WHERE state = 'COMPLETED' AND started_at IS NOT NULL) AS durations
FROM job WHERE id = ANY(:ids);

-- name: pools_named
-- Pools that jobs of some projects name.
SELECT DISTINCT job_version.rules::json ->> 'pool' AS pool FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = ANY(:projects) AND job.deleted_at IS NULL;
