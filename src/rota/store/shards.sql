-- name: insert_server
-- A server arrives, or comes back after its lease has ended.
INSERT INTO server (id, name, url, roles, zone, version, lease, started_at, expires_at)
VALUES (:id, :name, :url, :roles, :zone, :version, :lease, :now, :expires_at)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, stopping = 0;

-- name: end_other_servers
-- All servers but this one are over.
UPDATE server SET expires_at = :now WHERE id <> :id AND expires_at > :now;

-- name: end_server
-- A server says goodbye.
UPDATE server SET expires_at = :now, stopping = 1 WHERE id = :id AND expires_at > :now RETURNING id;

-- name: forget_servers
-- Servers that were over at the given time.
DELETE FROM server WHERE expires_at < :before;

-- name: renew_server
-- The lease is prolonged, unless it has ended.
UPDATE server SET expires_at = :now + lease, stopping = :stopping
WHERE id = :id AND expires_at > :now
RETURNING id;

-- name: live_servers
-- Servers whose lease lasts.
SELECT * FROM server WHERE expires_at > :now ORDER BY id;

-- name: select_servers
-- Servers, the newest first.
SELECT * FROM server ORDER BY started_at DESC, id;

-- name: select_shards
-- All shards, and who owns them.
SELECT number, owner, epoch, taken_at FROM shard ORDER BY number;

-- name: owned_shards
-- Which of these shards a server owns, and in which epoch, locked.
-- postgres: ORDER BY number FOR SHARE
SELECT number, epoch FROM shard WHERE number = ANY(:numbers) AND owner = :server;

-- name: take_shards
-- A server becomes the owner of those of these shards that nobody holds.
UPDATE shard SET owner = :server, epoch = epoch + 1, taken_at = :now
WHERE number = ANY(:numbers) AND (owner IS NULL OR owner = ANY(:ended))
RETURNING number, epoch;

-- name: give_shards
-- A server gives up shards of its own.
UPDATE shard SET owner = NULL WHERE number = ANY(:numbers) AND owner = :server
RETURNING number;

-- name: give_all_shards
-- A server gives up whatever it owns.
UPDATE shard SET owner = NULL WHERE owner = :server;
