-- name: latest_durations
-- How long the newest runs of jobs took that completed, in microseconds, as a list in a text.
SELECT id, (SELECT string_agg((ended_at - started_at)::TEXT, ',') FROM (SELECT state, started_at, ended_at
    FROM run WHERE job_id = job.id AND trigger <> 'probe' ORDER BY seq DESC LIMIT :looked_at) AS newest
    WHERE state = 'COMPLETED' AND started_at IS NOT NULL) AS durations
FROM job WHERE id = ANY(:ids);

-- name: pools_named
-- Pools that jobs of some projects name.
SELECT DISTINCT job_version.rules::json ->> 'pool' AS pool FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = ANY(:projects) AND job.deleted_at IS NULL;

-- name: coming_jobs_of_projects
-- Each job looks up its schedule and version, whatever the statistics say: joins are planned as walks through those of all projects.
SELECT job.id, job.project, job.name, job.version, job.created_by, job.paused_until,
    job.created_at, version.document, version.rules, timing.anchor, timing.next_at,
    timing.held_from, timing.waits, timing.answered_to,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds
FROM job
CROSS JOIN LATERAL (SELECT * FROM schedule WHERE schedule.job_id = job.id OFFSET 0) AS timing
CROSS JOIN LATERAL (SELECT document, rules FROM job_version WHERE job_version.job_id = job.id
    AND job_version.version = job.version OFFSET 0) AS version
WHERE job.project = ANY(:projects) AND job.deleted_at IS NULL
    AND (coalesce(timing.next_at, 0) < :before AND timing.next_at IS NOT NULL OR timing.waits = 1
        OR (coalesce(job.paused_until, 0) < :before AND job.paused_until IS NOT NULL)
        OR EXISTS (SELECT 1 FROM dependency WHERE dependency.job_id = job.id))
ORDER BY coalesce(timing.next_at, 0) LIMIT :limit;
