-- name: testkit_make_project
-- A project.
INSERT INTO project (name, title, defaults, policy, version, created_by, created_at, updated_by, updated_at)
VALUES (:name, '', '{}', '{}', 1, 'test', :now, 'test', :now);

-- name: testkit_end_project
-- A project is deleted.
UPDATE project SET deleted_at = :now WHERE name = :name;

-- name: testkit_make_principal
-- A principal.
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
VALUES (:handle, :kind, :issuer, :subject, '', '', 'test', :now);

-- name: testkit_disable
-- A principal may do nothing any more.
UPDATE principal SET disabled_at = :now WHERE handle = :handle;

-- name: testkit_unbind
-- A principal loses a role.
DELETE FROM binding WHERE principal = :principal AND scope = :scope;

-- name: testkit_log_in
-- What a provider said of a person.
INSERT INTO login_session (token, issuer, subject, sid, groups, refreshed_at, idle_until)
VALUES (:token, :issuer, :subject, '', :groups, :now, :idle_until);
