-- name: lock_gates
-- One transaction at a time looks at what counts at the gates of these jobs, and changes it.
SELECT FROM schedule WHERE job_id = ANY(:ids) ORDER BY job_id FOR NO KEY UPDATE;

-- name: lock_open_gates
-- These jobs stay as they are, though others may add runs as well.
SELECT FROM schedule WHERE job_id = ANY(:ids) ORDER BY job_id FOR SHARE;
