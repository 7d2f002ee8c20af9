-- name: insert_join_token
-- A right to let workers in, a few times.
INSERT INTO token (id, name, role, digest, kind, created_by, created_at, expires_at, pool, principal, shown,
    uses_left)
VALUES (:id, :name, 'viewer', :digest, 'join', :created_by, :now, :expires_at, :pool, :name, :shown, :uses);

-- name: join_token
-- One that is valid now, locked: its uses are taken one after another.
-- postgres: FOR UPDATE
SELECT id, pool, uses_left FROM token
WHERE digest = :digest AND kind = 'join' AND revoked_at IS NULL AND expires_at > :now;

-- name: hold_worker_name
-- Whose credentials are given or taken; a store with one writer needs no lock.
SELECT :name AS name;

-- name: take_use
-- One worker less may join.
UPDATE token SET uses_left = uses_left - 1, last_used_at = :now WHERE id = :id AND uses_left > 0 RETURNING id;

-- name: live_credentials
-- All that are valid of the worker of this name.
SELECT id, created_by, last_used_at, pool FROM token
WHERE name = :name AND kind = 'worker' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: insert_credential
-- The credential of a worker that joins.
INSERT INTO token (id, name, role, digest, kind, created_by, created_at, expires_at, pool, principal, shown,
    lifetime)
VALUES (:id, :name, 'viewer', :digest, 'worker', :created_by, :now, :expires_at, :pool, :principal,
    :shown, :lifetime);

-- name: revoke_credentials
-- Credentials of workers are valid no longer.
UPDATE token SET revoked_at = :now WHERE name = :name AND kind = 'worker' AND revoked_at IS NULL RETURNING id;

-- name: add_renewal
-- A second secret of a credential; a former one that was never used is gone.
UPDATE token SET next_digest = :digest, next_expires_at = :now + lifetime
WHERE id = :id AND kind = 'worker' AND lifetime IS NOT NULL AND revoked_at IS NULL AND expires_at > :now
RETURNING name, next_expires_at;

-- name: renewal
-- A credential whose second secret this is.
SELECT id FROM token WHERE next_digest = :digest AND revoked_at IS NULL AND next_expires_at > :now;

-- name: begin_renewal
-- The second secret is used for the first time, which ends the first one.
UPDATE token SET digest = next_digest, expires_at = next_expires_at, next_digest = NULL, next_expires_at = NULL
WHERE next_digest = :digest AND revoked_at IS NULL AND next_expires_at > :now RETURNING id;

-- name: drop_stale_join_tokens
-- Forget join tokens that ended long ago.
DELETE FROM token WHERE kind = 'join' AND expires_at < :before;
