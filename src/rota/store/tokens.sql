-- name: insert_token
-- A right to call, known by the digest of its secret.
INSERT INTO token
    (id, name, role, digest, kind, parent, created_by, created_at, expires_at, pool)
VALUES (:id, :name, :role, :digest, :kind, :parent, :created_by, :now, :expires_at, :pool);

-- name: token_by_digest
-- A token that is valid now.
SELECT * FROM token WHERE digest = :digest AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > :now)
    AND (parent IS NULL OR EXISTS (SELECT 1 FROM token AS opener
        WHERE opener.id = token.parent AND opener.revoked_at IS NULL
        AND (opener.expires_at IS NULL OR opener.expires_at > :now)));

-- name: touch_token
-- When a token was last used.
UPDATE token SET last_used_at = :now WHERE id = :id;

-- name: revoke_token
-- A token is valid no longer.
UPDATE token SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL RETURNING id;

-- name: select_tokens
-- Tokens of one kind, newest first.
SELECT * FROM token WHERE kind = :kind ORDER BY created_at DESC LIMIT 1000;

-- name: drop_stale_tokens
-- Forget login links and sessions that ended long ago.
DELETE FROM token WHERE kind IN ('login', 'session') AND expires_at < :before;
