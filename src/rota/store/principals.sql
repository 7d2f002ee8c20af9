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

-- name: enabled_principals
-- Those of these that may act.
SELECT handle FROM principal WHERE handle = ANY(:handles) AND disabled_at IS NULL;

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
