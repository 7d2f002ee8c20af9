-- name: claim_runs
-- Give runs to a session, each as a new attempt with nothing to tell yet.
UPDATE run SET state = 'CLAIMED', attempt = attempt + 1, session = :session, claimed_at = :now,
    capacity = :capacity, started_at = NULL, result = NULL, cause = '', message = '', exit_code = NULL,
    signal = NULL, steps = NULL, progress = NULL, cpu_seconds = 0, max_memory = 0, output = NULL,
    output_state = 'none', output_bytes = 0, output_lines = 0, truncated = 0
WHERE seq = ANY(:seqs) AND state = 'QUEUED'
RETURNING seq, id, attempt, job_id, job_version, due_at, deadline_at, inputs, cart, item, handle,
    source_commit, trigger, project;

-- name: claiming_session
-- A presence that does not end meanwhile; its free slots are given away one claim after another.
SELECT session.* FROM session WHERE id = :id;

-- name: free_session
-- The same, if nobody else claims for it or is about to end it.
-- postgres: AND pg_try_advisory_xact_lock(7682002, hashtext(:id)) FOR KEY SHARE SKIP LOCKED
SELECT session.* FROM session WHERE id = :id;

-- name: pool_state
-- How much a pool has served, and what all its live workers offer together.
SELECT (SELECT served FROM pool WHERE name = :pool) AS served,
    (SELECT totals FROM pool WHERE name = :pool) AS totals;

-- name: shapes
-- The distinct demands that a worker may meet: none of them is for another one alone.
SELECT id FROM shape WHERE worker IS NULL UNION ALL SELECT id FROM shape WHERE worker = :worker;

