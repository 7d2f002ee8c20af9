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

-- name: show_runs
-- These runs, of any project.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids);

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

-- name: count_active
-- What is not final, by state and pool.
SELECT state, pool, count(*) AS count FROM active_run GROUP BY state, pool;

-- name: oldest_queued
-- Since when the oldest run of each pool waits for a worker.
SELECT pool, min(queued_at) AS queued_at FROM run WHERE state = 'QUEUED' GROUP BY pool;

-- name: select_tallies
-- How many runs of each job ended in each state.
SELECT job, state, count FROM tally;

-- name: select_start_delays
-- How late runs had started.
SELECT pool, up_to, count, seconds FROM start_delay ORDER BY pool, up_to;

-- name: latest_delays
-- How late the runs of a job started that started last, in microseconds.
SELECT first_started_at - release_at AS delay
FROM (SELECT seq, first_started_at, release_at, backfill FROM run WHERE job_id = :job
    ORDER BY seq DESC LIMIT :looked_at) AS newest
WHERE first_started_at IS NOT NULL AND backfill IS NULL ORDER BY seq DESC LIMIT :limit;

-- name: select_ledger_runs
-- The runs that a schedule asked for, by due time.
SELECT id, due_at, pool, state, cause FROM run
WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until
ORDER BY due_at LIMIT :limit;

-- name: select_newest_ledger_runs
-- The runs that a schedule asked for, the last due time first.
SELECT id, due_at, pool, state, cause FROM run
WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until
ORDER BY due_at DESC LIMIT :limit;

-- name: select_newest_unanswered
-- The stretches of due times without runs, the last first.
SELECT first, last, count, state, cause FROM unanswered
WHERE job_id = :job AND last >= :since AND first <= :until
ORDER BY first DESC LIMIT :limit;

-- name: select_unanswered
-- The stretches of due times without runs, by time.
SELECT first, last, count, state, cause FROM unanswered
WHERE job_id = :job AND last >= :since AND first <= :until
ORDER BY first LIMIT :limit;
