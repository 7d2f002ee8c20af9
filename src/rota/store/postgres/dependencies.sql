-- name: keep_completion
-- When jobs were last completed that others follow.
INSERT INTO completion (project, job, at)
SELECT * FROM unnest(:project::text[], :job::text[], :at::bigint[]) AS new (project, job, at)
ON CONFLICT (project, job) DO UPDATE SET at = greatest(completion.at, excluded.at);
