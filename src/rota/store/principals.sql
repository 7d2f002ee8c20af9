-- name: insert_principal
-- Somebody new; neither a handle nor what an issuer calls somebody is given twice.
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
VALUES (:handle, :kind, :issuer, :subject, :title, :email, :actor, :now)
ON CONFLICT DO NOTHING RETURNING handle;

-- name: principal_by_subject
-- Whom an issuer calls so.
SELECT * FROM principal WHERE kind = :kind AND issuer = :issuer AND issuer <> '' AND subject = :subject;

-- name: principals_by_email
-- Users with this verified address.
SELECT * FROM principal WHERE kind = 'user' AND issuer = :issuer AND email = :email AND email <> ''
ORDER BY handle LIMIT 2;

-- name: select_principals
-- Principals by handle.
SELECT * FROM principal WHERE handle > :after ORDER BY handle LIMIT :limit;

-- name: select_principals_by_handle
-- These, as far as they are there.
SELECT * FROM principal WHERE handle = ANY(:handles) ORDER BY handle;

-- name: set_disabled
-- Whether a principal may do nothing any more.
UPDATE principal SET disabled_at = :disabled_at WHERE handle = :handle;

-- name: credentials_of
-- Credentials of a worker with which sessions may be open, locked.
-- postgres: ORDER BY id FOR UPDATE
SELECT id FROM token WHERE principal = :principal AND kind = 'worker' AND revoked_at IS NULL;

-- name: admins_of_installation
-- Who may change everything, locked: one transaction at a time takes that from somebody.
-- postgres: ORDER BY principal FOR UPDATE
SELECT principal FROM binding WHERE scope = '*' AND role = 'admin';

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
    AND EXISTS (SELECT 1 FROM json_each(person.groups) AS told WHERE told.value = team.subject);

-- name: role_in
-- What a principal may do in a scope.
-- postgres: FOR UPDATE
SELECT role FROM binding WHERE principal = :principal AND scope = :scope;

-- name: put_binding
-- A principal has a role in a scope.
INSERT INTO binding (principal, scope, role, created_by, created_at)
VALUES (:principal, :scope, :role, :actor, :now)
ON CONFLICT (principal, scope) DO UPDATE SET role = excluded.role, created_by = excluded.created_by,
    created_at = excluded.created_at;

-- name: take_binding
-- A principal has no role in a scope.
DELETE FROM binding WHERE principal = :principal AND scope = :scope RETURNING role;

-- name: select_bindings
-- Roles with those who have them; of one scope, of one principal, or all.
SELECT binding.scope, binding.role, binding.created_by AS bound_by, binding.created_at AS bound_at, principal.*
FROM binding JOIN principal ON principal.handle = binding.principal
WHERE (CAST(:scope AS TEXT) IS NULL OR binding.scope = :scope)
    AND (CAST(:principal AS TEXT) IS NULL OR binding.principal = :principal)
ORDER BY binding.scope, binding.principal LIMIT 10000;

-- name: orphaned_jobs
-- Jobs whose creator has no role any more where they are, by themselves or by a group they were in when
-- the provider told of them last.
SELECT job.project, job.name, job.created_by FROM job
WHERE job.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM binding
    JOIN principal ON principal.handle = binding.principal AND principal.disabled_at IS NULL
    WHERE binding.principal = job.created_by AND binding.scope IN (job.project, '*'))
AND NOT EXISTS (SELECT 1 FROM principal AS creator, json_each(creator.groups) AS told
    JOIN principal AS theirs ON theirs.kind = 'group' AND theirs.issuer = creator.issuer AND theirs.issuer <> ''
        AND theirs.subject = told.value AND theirs.disabled_at IS NULL
    JOIN binding ON binding.principal = theirs.handle AND binding.scope IN (job.project, '*')
    WHERE creator.handle = job.created_by AND creator.disabled_at IS NULL)
ORDER BY job.project, job.name LIMIT :limit;
