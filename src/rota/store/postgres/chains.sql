-- name: lock_chains
-- Lines that are to change.
SELECT FROM chain WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;
