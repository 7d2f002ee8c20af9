-- name: claim_runs
-- Give runs to a session, each as a new attempt with nothing to tell yet.
UPDATE run SET state = 'CLAIMED', attempt = attempt + 1, session = :session, claimed_at = :now,
    capacity = :capacity, started_at = NULL, result = NULL, cause = '', message = '', exit_code = NULL,
    signal = NULL, steps = NULL, progress = NULL, cpu_seconds = 0, max_memory = 0, output = NULL,
    output_state = 'none', output_bytes = 0, output_lines = 0, truncated = 0
WHERE seq = ANY(:seqs::text::bigint[]) AND coalesce(state, '') = 'QUEUED'
RETURNING seq, id, attempt, job_id, job_version, due_at, deadline_at, inputs, cart, item, handle,
    source_commit, trigger, project;

-- name: claiming_session
-- A presence that does not end meanwhile. Its free slots are given away one claim after another: claims
-- wait for a lock beside the row, which a renewal has to change without waiting for any of them.
SELECT session.* FROM session, pg_advisory_xact_lock(7682002, hashtext(:id))
WHERE id = :id FOR KEY SHARE OF session;
