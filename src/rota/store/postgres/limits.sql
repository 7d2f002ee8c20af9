-- name: runs_to_rekey
-- What tells the keys of these runs, as far as they are not final, locked.
SELECT seq, state, job_id, job_version, inputs, keys, CASE WHEN trigger IN ('schedule', 'after')
    THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE created_by END AS asker
FROM run WHERE seq = ANY(:seqs) AND coalesce(state, '')
    IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
ORDER BY id FOR NO KEY UPDATE;

-- name: users_of_resource
-- Jobs that use a named resource now.
SELECT job.name FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = :project AND job.deleted_at IS NULL
    AND job_version.rules::jsonb -> 'uses' ? CAST(:name AS TEXT)
ORDER BY job.name LIMIT :limit;
