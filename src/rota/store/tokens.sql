-- name: insert_token
-- A right to call, known by the digest of its secret.
INSERT INTO token
    (id, name, role, digest, kind, parent, created_by, created_at, expires_at, pool, principal, project, verbs, shown)
VALUES (:id, :name, :role, :digest, :kind, :parent, :created_by, :now, :expires_at, :pool, :principal, :project,
    :verbs, :shown);

-- name: token_by_digest
-- A token that is valid now: a row for each role of its principal that may count, or one without a role.
SELECT token.*, principal.kind AS principal_kind, login_session.issuer, login_session.groups, binding.scope,
    binding.role AS bound, login_session.refreshed_at, login_session.idle_until, login_session.refreshing_until,
    login_session.refresh_token IS NOT NULL AS has_refresh_token
FROM token
LEFT JOIN principal ON principal.handle = token.principal
LEFT JOIN login_session ON login_session.token = token.id
LEFT JOIN binding ON binding.principal = token.principal
    AND (token.project IS NULL OR binding.scope = token.project OR binding.scope = '*')
    AND (binding.scope = '*' OR EXISTS (SELECT 1 FROM project
        WHERE project.name = binding.scope AND project.deleted_at IS NULL))
WHERE token.digest = :digest AND token.revoked_at IS NULL
    AND (token.expires_at IS NULL OR token.expires_at > :now)
    AND principal.disabled_at IS NULL
    AND (login_session.token IS NULL OR login_session.idle_until > :now)
    AND (token.parent IS NULL OR EXISTS (SELECT 1 FROM token AS opener
        WHERE opener.id = token.parent AND opener.revoked_at IS NULL
        AND (opener.expires_at IS NULL OR opener.expires_at > :now)));

-- name: count_rights_change
-- Rights have changed: whoever trusts what was read before has to read again.
-- many: key text
INSERT INTO meta (key, value) VALUES (:key, '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT);

-- name: rights_changes
-- How often rights have changed.
SELECT value FROM meta WHERE key = 'rights';

-- name: roles_of_groups
-- Roles of groups of one issuer.
SELECT binding.scope, binding.role AS bound
FROM principal JOIN binding ON binding.principal = principal.handle
WHERE principal.kind = 'group' AND principal.issuer = :issuer AND principal.issuer <> ''
    AND principal.subject = ANY(:groups) AND principal.disabled_at IS NULL
    AND (binding.scope = '*' OR EXISTS (SELECT 1 FROM project
        WHERE project.name = binding.scope AND project.deleted_at IS NULL));

-- name: make_service
-- A service of this name, unless the name is taken.
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
VALUES (:handle, 'service', '', '', '', '', :by, :now) ON CONFLICT DO NOTHING RETURNING handle;

-- name: principal_to_bind
-- A principal whose roles nobody else changes until the transaction ends.
-- postgres: FOR NO KEY UPDATE
SELECT kind FROM principal WHERE handle = :handle;

-- name: bindings_of
-- Roles of a principal.
SELECT scope, role FROM binding WHERE principal = :principal;

-- name: touch_token
-- When a token was last used.
UPDATE token SET last_used_at = :now WHERE id = :id;

-- name: revoke_token
-- A token is valid no longer.
UPDATE token SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL
    AND (:any_project = 1 OR project = ANY(:projects))
RETURNING id, project;

-- name: end_login_links
-- No login link that was made so far is valid any more.
UPDATE token SET revoked_at = :now WHERE kind = 'login' AND revoked_at IS NULL;

-- name: select_tokens
-- Tokens of one kind, newest first.
SELECT * FROM token WHERE kind = :kind AND (created_at, id) < (:before_at, :before_id)
    AND (:any_project = 1 OR project = ANY(:projects))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: select_tokens_of_project
-- Tokens of programs that are for one project alone, newest first.
SELECT * FROM token WHERE project = :project AND kind = 'api' AND (created_at, id) < (:before_at, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: select_old_tokens
-- Valid tokens of programs for all projects that an earlier release made: later ones tell how they begin.
SELECT * FROM token WHERE kind = 'api' AND project IS NULL AND shown = '' AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > :now)
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: drop_stale_tokens
-- Forget login links and sessions that ended long ago, but for those by which the provider is asked about
-- somebody whose terminal goes on.
DELETE FROM token WHERE kind IN ('login', 'session', 'terminal') AND expires_at < :before
    AND (revoked_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM login_session AS mine
        JOIN login_session AS theirs ON theirs.issuer = mine.issuer AND theirs.subject = mine.subject
        JOIN token AS terminal ON terminal.id = theirs.token AND terminal.kind = 'terminal'
            AND terminal.revoked_at IS NULL AND terminal.expires_at > :before
        WHERE mine.token = token.id AND mine.refresh_token IS NOT NULL));
