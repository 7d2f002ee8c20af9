-- name: upstream_ends
-- Completed runs that are to be followed and that nobody else is about to follow.
SELECT run_id, project, job, ended_at FROM upstream_end ORDER BY run_id LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: keep_completion
-- When jobs were last completed that others follow.
INSERT INTO completion (project, job, at)
SELECT * FROM unnest(:project::text[], :job::text[], :at::bigint[]) AS new (project, job, at)
ON CONFLICT (project, job) DO UPDATE SET at = greatest(completion.at, excluded.at);
