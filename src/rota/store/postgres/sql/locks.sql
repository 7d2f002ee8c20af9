-- Rows that scripts lock before they look, in the order that `script.py` tells.

-- name: lock_calendars
-- Calendars that are to change or to go.
SELECT FROM calendar WHERE project = :project AND name = ANY(:names) ORDER BY name FOR UPDATE;

-- name: lock_used_calendars
-- Calendars that must neither change nor go while jobs begin to use them.
SELECT FROM calendar WHERE project = :project AND name = ANY(:names) ORDER BY name FOR SHARE;

-- name: lock_sessions
-- Sessions that are to end: nobody claims for them meanwhile.
SELECT FROM session WHERE id = ANY(:ids) ORDER BY id FOR UPDATE;

-- name: lock_carts
-- One transaction at a time decides about these carts.
SELECT FROM cart WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;

-- name: lock_used_carts
-- These carts are neither paused nor resumed while runs of theirs pass the gates.
SELECT FROM cart WHERE id = ANY(:ids) ORDER BY id FOR SHARE;

-- name: lock_gates
-- One transaction at a time looks at what counts at the gates of these jobs, and changes it.
SELECT FROM schedule WHERE job_id = ANY(:ids) ORDER BY job_id FOR NO KEY UPDATE;

-- name: lock_open_gates
-- These jobs stay as they are, though others may add runs as well.
SELECT FROM schedule WHERE job_id = ANY(:ids) ORDER BY job_id FOR SHARE;

-- name: lock_shapes
-- Demands that are to be forgotten: no run begins to make them meanwhile.
SELECT FROM shape WHERE id = ANY(:ids) ORDER BY id FOR UPDATE;

-- name: lock_chains
-- Lines that are to change.
SELECT FROM chain WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;
