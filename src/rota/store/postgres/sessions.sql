-- name: lock_sessions
-- Sessions that are to end: nobody claims for them meanwhile.
SELECT FROM session WHERE id = ANY(:ids) ORDER BY id FOR UPDATE;
