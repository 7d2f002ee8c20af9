-- name: take_shards
-- A server becomes the owner of those of these shards that nobody holds. One whose former owner is
-- still busy firing is left for the next time: a renewal waits for nobody.
UPDATE shard SET owner = :server, epoch = epoch + 1, taken_at = :now
WHERE number IN (SELECT number FROM shard
    WHERE number = ANY(:numbers) AND (owner IS NULL OR owner = ANY(:ended))
    FOR NO KEY UPDATE SKIP LOCKED)
RETURNING number, epoch;
