-- name: hold_worker_name
-- Whose credentials are given or taken: nobody else does so meanwhile.
SELECT pg_advisory_xact_lock(7682003, hashtext(:name));
