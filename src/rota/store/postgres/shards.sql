-- name: take_shards
-- A server becomes the owner of those of these shards that nobody holds. One whose former owner is
-- still busy firing is left for the next time: a renewal waits for nobody.
UPDATE shard SET owner = :server, epoch = epoch + 1, taken_at = :now
WHERE number IN (SELECT number FROM shard
    WHERE number = ANY(:numbers) AND (owner IS NULL OR owner = ANY(:ended))
    FOR NO KEY UPDATE SKIP LOCKED)
RETURNING number, epoch;

-- name: give_shards
-- A server gives up shards of its own. One that it is busy firing stays its own until the next time:
-- a renewal waits for nobody, least of all for its own server.
UPDATE shard SET owner = NULL
WHERE number IN (SELECT number FROM shard WHERE number = ANY(:numbers) AND owner = :server
    FOR NO KEY UPDATE SKIP LOCKED)
RETURNING number;

-- name: end_transactions
-- Whatever servers that are over have under way ends, and their locks are free. One that was stopped
-- in the middle of a statement holds them for as long as it likes.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
    AND xact_start IS NOT NULL
    AND application_name IN (SELECT 'rota ' || id FROM server WHERE expires_at <= :now);
