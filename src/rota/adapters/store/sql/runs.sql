-- name: insert_run
-- A run, in the state the gates gave it; a scheduled one that exists already is left alone.
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, cause, due_at, release_at,
    eligible_at, deadline_at, priority, pool, chain, shape, delivery, max_attempts, expected,
    blocked_on, reasons, inputs, created_by, created_at, queued_at, ended_at, retry_of)
VALUES (:id, :project, :job_id, :job, :job_version, :trigger, :state, :cause, :due_at, :release_at,
    :eligible_at, :deadline_at, :priority, :pool, :chain, :shape, :delivery, :max_attempts, :expected,
    :blocked_on, :reasons, :inputs, :created_by, :created_at, :queued_at, :ended_at, :retry_of)
ON CONFLICT (id) DO NOTHING;

-- name: active_runs
-- What is due and not final of these jobs, but for manual runs that only wait.
SELECT id, seq, job_id, state, trigger FROM run
WHERE job_id = ANY(:ids)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    AND (state <> 'BLOCKED' OR trigger = 'schedule') AND due_at <= :now
ORDER BY seq;

-- name: waiting_runs
-- Runs that wait on this key, oldest first.
SELECT id, seq, job_id, state, trigger, chain, pool, priority FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key ORDER BY seq LIMIT :limit;

-- name: waited_keys
-- Keys that at least one run waits on.
SELECT DISTINCT blocked_on AS key FROM run WHERE state = 'BLOCKED' LIMIT :limit;

-- name: queue_run
-- Every gate passed.
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL, queued_at = :now
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED');

-- name: block_run
-- A gate holds it.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons, eligible_at = NULL
WHERE id = :id AND state IN ('SCHEDULED', 'QUEUED');

-- name: rename_block
-- The gate that holds it is another one now.
UPDATE run SET blocked_on = :key, reasons = :reasons WHERE id = :id AND state = 'BLOCKED';

-- name: end_waiting_run
-- A waiting run ends without an attempt: skipped, missed, cancelled or past its deadline.
UPDATE run SET state = :state, cause = :cause, ended_at = :now, blocked_on = NULL, reasons = NULL,
    eligible_at = NULL
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: request_cancel
-- Ask live runs to stop.
UPDATE run SET cancel_at = :now, cancel_by = :actor
WHERE id = ANY(:ids) AND state IN ('CLAIMED', 'PROCESSING') AND cancel_at IS NULL;

-- name: runs_to_change
-- What decisions about these runs need, locked.
SELECT id, seq, project, job_id, job, job_version, trigger, state, attempt, failures, losses, session,
    delivery, chain, pool, priority, shape, cost, expected, cancel_at, deadline_at, release_at,
    claimed_at, started_at, first_started_at, due_at, result
FROM run WHERE id = ANY(:ids);

-- name: queued_runs_of_job
-- Runs of a job that wait for a worker.
SELECT id FROM run WHERE job_id = :job AND state = 'QUEUED' ORDER BY seq;

-- name: overdue_runs
-- Waiting runs whose deadline has passed.
SELECT id, job_id, job FROM run
WHERE deadline_at IS NOT NULL AND deadline_at <= :now AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
LIMIT :limit;

-- name: active_chains
-- The lines of a pool that have runs.
SELECT id, priority, tag, weight FROM chain WHERE pool = :pool AND active = 1;

-- name: chains
-- Where these lines stand, locked.
SELECT id, tag, active FROM chain WHERE id = ANY(:ids);

-- name: active_tags
-- Tags of the active lines of a pool and priority.
SELECT min(tag) AS tag FROM chain WHERE pool = :pool AND priority = :priority AND active = 1;

-- name: activate_chain
-- A line that has runs again.
INSERT INTO chain (id, pool, priority, share, tag, active)
VALUES (:id, :pool, :priority, :share, :tag, 1)
ON CONFLICT (id) DO UPDATE SET tag = excluded.tag, active = 1;

-- name: charge_chain
-- Move a line's tag by what its runs cost.
UPDATE chain SET tag = tag + :cost / weight WHERE id = :id;

-- name: rest_chains
-- Lines that have no run left.
UPDATE chain SET active = 0 WHERE id = ANY(:ids)
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id);

-- name: shapes
-- All distinct demands on workers.
SELECT id FROM shape;

-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) VALUES (:id) ON CONFLICT DO NOTHING;

-- name: pool_state
-- How much a pool has served, and how many slots its live workers have.
SELECT (SELECT served FROM pool WHERE name = :pool) AS served,
    (SELECT sum(slots) FROM session WHERE pool = :pool AND alive = 1) AS slots;

-- name: count_served
-- How much a pool has served.
INSERT INTO pool (name, served) VALUES (:pool, :served)
ON CONFLICT (name) DO UPDATE SET served = pool.served + excluded.served;

-- name: chain_heads
-- The oldest runs of a line that fit.
SELECT seq FROM run WHERE state = 'QUEUED' AND chain = :chain AND shape = ANY(:shapes)
ORDER BY seq LIMIT :limit;

-- name: oldest_runs
-- The oldest run that fits of each line of a pool, oldest first.
SELECT seq FROM (SELECT (SELECT min(run.seq) FROM run
        WHERE run.state = 'QUEUED' AND run.chain = chain.id AND run.shape = ANY(:shapes)) AS seq
    FROM chain WHERE chain.pool = :pool AND chain.active = 1)
WHERE seq IS NOT NULL ORDER BY seq LIMIT :limit;

-- name: claim_runs
-- Give runs to a session, each as a new attempt.
UPDATE run SET state = 'CLAIMED', attempt = attempt + 1, session = :session, claimed_at = :now,
    started_at = NULL, result = NULL, cost = expected / :pool_slots
WHERE seq = ANY(:seqs) AND state = 'QUEUED'
RETURNING seq, id, attempt, job_id, job_version, due_at, inputs, chain, cost;

-- name: start_runs
-- Execution begins.
UPDATE run SET state = 'PROCESSING', started_at = :started_at,
    first_started_at = coalesce(first_started_at, :started_at)
WHERE id = :id AND state = 'CLAIMED' AND attempt = :attempt AND session = :session;

-- name: end_attempt
-- An attempt ended: the run is final, waits for the next attempt, or is unknown.
UPDATE run SET state = :state, cause = :cause, message = :message, eligible_at = :eligible_at,
    exit_code = :exit_code, signal = :signal, outputs = :outputs, failures = :failures, losses = :losses,
    started_at = :started_at, first_started_at = :first_started_at, ended_at = :ended_at, result = :result,
    steps = :steps, cpu_seconds = :cpu_seconds, max_memory = :max_memory, output = :output,
    output_state = :output_state, output_bytes = :output_bytes, output_lines = :output_lines,
    truncated = :truncated
WHERE seq = :seq AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: keep_attempts
-- Keep how an attempt went, before the next one overwrites it.
INSERT INTO attempt (run_id, number, session, worker, result, claimed_at, started_at, ended_at,
    exit_code, signal, message, steps, cpu_seconds, max_memory, output, output_state, output_bytes,
    output_lines, truncated)
SELECT run.id, run.attempt, run.session, coalesce(session.worker, ''), run.result, run.claimed_at,
    run.started_at, :now, run.exit_code, run.signal, run.message, run.steps, run.cpu_seconds,
    run.max_memory, run.output, run.output_state, run.output_bytes, run.output_lines, run.truncated
FROM run LEFT JOIN session ON session.id = run.session WHERE run.seq = ANY(:seqs);

-- name: ended_attempts
-- Attempts of these runs that were followed by another.
SELECT run_id, number, session, result FROM attempt WHERE run_id = ANY(:ids);

-- name: insert_late_result
-- A report that came after its lease had ended.
INSERT INTO late_result (run_id, attempt, session, received_at, result, message)
VALUES (:run, :attempt, :session, :now, :result, :message) ON CONFLICT DO NOTHING;

-- name: resolve_run
-- A person ends the doubt.
UPDATE run SET state = :state, cause = :cause, eligible_at = :eligible_at, ended_at = :ended_at,
    failures = failures + :failures
WHERE id = :id AND state = 'UNKNOWN';

-- name: set_progress
-- How far a run is.
UPDATE run SET progress = :progress
WHERE id = :id AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: count_ends
-- How many runs of a job ended in a state.
INSERT INTO tally (job, state, count) VALUES (:job, :state, :count)
ON CONFLICT (job, state) DO UPDATE SET count = tally.count + excluded.count;

-- name: select_runs
-- Runs, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.seq < :before_seq
    AND (:any_id OR run.id = ANY(:ids))
    AND (:id_from IS NULL OR (run.id >= :id_from AND run.id < :id_to))
    AND (:job IS NULL OR run.job_id = :job)
    AND (:job_like IS NULL OR run.job LIKE :job_like ESCAPE '\')
    AND (:any_state OR run.state = ANY(:states))
    AND (:trigger IS NULL OR run.trigger = :trigger)
    AND (:since IS NULL OR run.created_at >= :since)
    AND (:until IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_by_id
-- These runs.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids) AND run.project = :project;

-- name: select_active_runs
-- Runs that are not final, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.seq < :before_seq
    AND run.state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    AND run.state = ANY(:states)
    AND (:job IS NULL OR run.job_id = :job)
    AND (:job_like IS NULL OR run.job LIKE :job_like ESCAPE '\')
    AND (:trigger IS NULL OR run.trigger = :trigger)
    AND (:since IS NULL OR run.created_at >= :since)
    AND (:until IS NULL OR run.created_at < :until)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_attempts
-- The attempts of a run that have ended.
SELECT * FROM attempt WHERE run_id = :run ORDER BY number;

-- name: select_late_results
-- Reports that were refused.
SELECT * FROM late_result WHERE run_id = :run ORDER BY received_at;

-- name: queue_position
-- Queued runs of the same pool that are in a line of higher or equal priority and older.
SELECT count(*) AS ahead FROM run AS other, run
WHERE run.id = :run AND run.state = 'QUEUED' AND other.state = 'QUEUED' AND other.pool = run.pool
    AND (other.priority > run.priority OR (other.priority = run.priority AND other.seq < run.seq));

-- name: find_idempotency
-- The first answer to a caller's key.
SELECT digest, answer FROM idempotency WHERE key = :key;

-- name: insert_idempotency
-- Remember the answer to a caller's key.
INSERT INTO idempotency (key, digest, answer, created_at) VALUES (:key, :digest, :answer, :now);

-- name: count_active
-- What is not final, by state and pool.
SELECT state, pool, count(*) AS count FROM run
WHERE state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
GROUP BY state, pool;

-- name: oldest_queued
-- Since when the oldest run of each pool waits for a worker.
SELECT pool, min(queued_at) AS queued_at FROM run WHERE state = 'QUEUED' GROUP BY pool;

-- name: select_tallies
-- How many runs of each job ended in each state.
SELECT job, state, count FROM tally;

-- name: latest_attempt
-- The latest attempt of a run, in the words of `attempt`.
SELECT run.id AS run_id, attempt AS number, session, coalesce(worker, '') AS worker, result, claimed_at,
    started_at, ended_at, exit_code, signal, message, steps, cpu_seconds, max_memory, output_state,
    output_bytes, output_lines, truncated
FROM run LEFT JOIN session ON session.id = run.session WHERE run.id = :run AND attempt > 0;
