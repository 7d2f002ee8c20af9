-- name: lock_sessions
-- Sessions that are to end: nobody claims for them meanwhile.
SELECT FROM session WHERE id = ANY(:ids) ORDER BY id FOR UPDATE;

-- name: start_runs
-- Execution begins.
UPDATE run SET state = 'PROCESSING', started_at = begun.started_at,
    first_started_at = coalesce(first_started_at, begun.started_at)
FROM unnest(:started_at::bigint[], :id::text[], :attempt::integer[], :session::text[])
    AS begun (started_at, id, attempt, session)
WHERE run.id = begun.id AND coalesce(run.state, '') = 'CLAIMED' AND run.attempt = begun.attempt
    AND run.session = begun.session;
