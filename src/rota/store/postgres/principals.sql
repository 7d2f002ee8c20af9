-- name: orphaned_jobs
-- Jobs whose creator has no role any more where they are, by themselves or by a group they were in when
-- the provider told of them last.
SELECT job.project, job.name, job.created_by FROM job
WHERE job.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM binding
    JOIN principal ON principal.handle = binding.principal AND principal.disabled_at IS NULL
    WHERE binding.principal = job.created_by AND binding.scope IN (job.project, '*'))
AND NOT EXISTS (SELECT 1 FROM principal AS creator
    CROSS JOIN LATERAL jsonb_array_elements_text(creator.groups::jsonb) AS told (value)
    JOIN principal AS theirs ON theirs.kind = 'group' AND theirs.issuer = creator.issuer AND theirs.issuer <> ''
        AND theirs.subject = told.value AND theirs.disabled_at IS NULL
    JOIN binding ON binding.principal = theirs.handle AND binding.scope IN (job.project, '*')
    WHERE creator.handle = job.created_by AND creator.disabled_at IS NULL)
ORDER BY job.project, job.name LIMIT :limit;
