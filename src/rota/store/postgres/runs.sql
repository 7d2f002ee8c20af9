-- name: runs_to_change
-- What decisions about these runs need, locked.
SELECT id, seq, job_id, job, job_version, state, attempt, session, result, failures, losses, delivery,
    chain, capacity, expected, cancel_at, deadline_at, claimed_at, started_at, first_started_at,
    release_at, backfill, gate_job, cart, keys, shape
FROM run WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;

-- name: set_progress
-- How far a run is.
UPDATE run SET progress = told.progress
FROM unnest(:progress::text[], :id::text[], :attempt::integer[], :session::text[])
    AS told (progress, id, attempt, session)
WHERE run.id = told.id AND run.attempt = told.attempt AND run.session = told.session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING');
