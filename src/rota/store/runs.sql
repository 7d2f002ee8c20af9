-- Written around a column, coalesce keeps it out of the access path: an index on what is few (ids,
-- what is not final) leads, never one that grows with history.

-- name: waiting_pools
-- The pools that have lines with runs in them.
SELECT DISTINCT pool FROM chain WHERE active = 1;

-- name: select_runs
-- Runs, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.seq < :before_seq
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_job
-- Runs of a job, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.job_id = :job AND run.project = :project AND run.seq < :before_seq
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_backfill
-- Runs of a backfill, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.backfill = :backfill AND run.project = :project AND run.seq < :before_seq
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_cart
-- Runs of a cart, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.cart = :cart AND run.project = :project AND run.seq < :before_seq
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_active_runs
-- Runs that are not final, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.seq IN (SELECT seq FROM active_run)
    AND run.project = :project AND run.seq + 0 < :before_seq AND run.state = ANY(:states)
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_by_id
-- These runs, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids) AND run.project = :project ORDER BY run.seq DESC;

-- name: select_runs_by_prefix
-- Runs whose id lies in a range.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id >= :id_from AND run.id < :id_to AND run.project = :project ORDER BY run.id LIMIT :limit;

-- name: select_attempts
-- Attempts of a run that have ended and may be followed by another.
SELECT * FROM attempt WHERE run_id = :run ORDER BY number;

-- name: latest_attempt
-- The latest attempt of a run, in the words of `attempt`.
SELECT run.id AS run_id, attempt AS number, session, coalesce(worker, '') AS worker, result, claimed_at,
    started_at, ended_at, exit_code, signal, message, steps, cpu_seconds, max_memory, output_state,
    output_bytes, output_lines, truncated
FROM run LEFT JOIN session ON session.id = run.session WHERE run.id = :run AND attempt > 0;

-- name: select_late_results
-- Reports that were refused.
SELECT * FROM late_result WHERE run_id = :run ORDER BY received_at;

-- name: latest_delays
-- How late the runs of a job started that started last, in microseconds.
SELECT first_started_at - release_at AS delay
FROM (SELECT seq, first_started_at, release_at, backfill FROM run WHERE job_id = :job
    ORDER BY seq DESC LIMIT :looked_at) AS newest
WHERE first_started_at IS NOT NULL AND backfill IS NULL ORDER BY seq DESC LIMIT :limit;

-- name: runs_to_change
-- What decisions about these runs need, locked.
-- postgres: ORDER BY id FOR NO KEY UPDATE
SELECT id, seq, job_id, job, job_version, state, attempt, session, result, failures, losses, delivery,
    chain, capacity, expected, cancel_at, deadline_at, claimed_at, started_at, first_started_at,
    release_at, backfill, gate_job, cart, keys, shape
FROM run WHERE id = ANY(:ids);

-- name: any_queued
-- One of these runs that waits for a worker.
SELECT id FROM run WHERE id = ANY(:ids) AND state = 'QUEUED' LIMIT 1;

-- name: resolve_run
-- A person ends the doubt, and with it an older request to cancel.
UPDATE run SET state = :state, cause = :cause, eligible_at = :eligible_at, ended_at = :ended_at,
    failures = failures + :failures, cancel_at = NULL, cancel_by = ''
WHERE id = :id AND state = 'UNKNOWN';

-- name: set_progress
-- How far a run is.
-- many: progress text, id text, attempt integer, session text
UPDATE run SET progress = :progress
WHERE id = :id AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: hold_run
-- Somebody holds it. A time that had not come, as that of the next attempt, is still to be waited for.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons,
    eligible_at = CASE WHEN state = 'SCHEDULED' THEN eligible_at END,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: set_priority
-- A run that waits stands in another line.
UPDATE run SET priority = :priority, chain = :chain
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');
