-- name: lock_chains
-- Chains that are to change.
SELECT FROM chain WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;
