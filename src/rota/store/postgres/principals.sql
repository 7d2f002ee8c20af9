-- name: able_admins
-- Admins of the installation who have a way to act, and whose role it is: by a token of a program, or by a login
-- of their own or of a member of a group, whom the provider of the settings knows.
SELECT binding.principal AS bound, principal.handle AS actor
FROM binding JOIN principal ON principal.handle = binding.principal AND principal.disabled_at IS NULL
WHERE binding.scope = '*' AND binding.role = 'admin'
    AND ((principal.kind = 'user' AND principal.issuer = :issuer AND principal.issuer <> ''
            AND substr(principal.subject, 1, length(CAST(:awaited AS TEXT))) <> CAST(:awaited AS TEXT))
        OR EXISTS (SELECT 1 FROM token WHERE token.principal = principal.handle AND token.kind = 'api'
            AND token.role = 'admin' AND token.project IS NULL AND token.verbs IS NULL
            AND token.revoked_at IS NULL AND (token.expires_at IS NULL OR token.expires_at > :now)))
UNION ALL
SELECT 'a token of a former release', name FROM token
WHERE principal = '' AND kind = 'api' AND role = 'admin' AND project IS NULL AND verbs IS NULL
    AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
UNION ALL
SELECT binding.principal, person.handle
FROM binding JOIN principal AS team ON team.handle = binding.principal AND team.disabled_at IS NULL
    AND team.kind = 'group' AND team.issuer = :issuer AND team.issuer <> ''
JOIN principal AS person ON person.kind = 'user' AND person.issuer = team.issuer AND person.disabled_at IS NULL
WHERE binding.scope = '*' AND binding.role = 'admin'
    AND EXISTS (SELECT 1 FROM jsonb_array_elements_text(person.groups::jsonb) AS told (value) WHERE told.value = team.subject);

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
