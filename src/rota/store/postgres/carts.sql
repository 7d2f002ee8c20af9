-- name: lock_carts
-- One transaction at a time decides about these carts.
SELECT FROM cart WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;

-- name: lock_used_carts
-- These carts are neither paused nor resumed while runs of theirs pass the gates.
SELECT FROM cart WHERE id = ANY(:ids) ORDER BY id FOR SHARE;
