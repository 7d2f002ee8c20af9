-- Written around a column, coalesce keeps it out of the access path: an index on what is few (ids,
-- what is not final) leads, never one that grows with history.

-- name: insert_run
-- A run, in the state the gates gave it.
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, cause, due_at, release_at,
    eligible_at, deadline_at, late_at, drop_at, priority, pool, chain, shape, delivery, max_attempts,
    expected, blocked_on, reasons, inputs, created_by, created_at, queued_at, ended_at, retry_of, gate_job,
    backfill, caught_up, cart, item, follows, previous_due, keys, timeout)
VALUES (:id, :project, :job_id, :job, :job_version, :trigger, :state, :cause, :due_at, :release_at,
    :eligible_at, :deadline_at, :late_at, :drop_at, :priority, :pool, :chain, :shape, :delivery,
    :max_attempts, :expected, :blocked_on, :reasons, :inputs, :created_by, :created_at, :queued_at,
    :ended_at, :retry_of, :gate_job, :backfill, :caught_up, :cart, :item, :follows,
    :previous_due, :keys, :timeout);

-- name: known_runs
-- Which of these ids exist.
SELECT id FROM run WHERE id = ANY(:ids);

-- name: active_runs
-- What is due, not final, and counts at the gates of these jobs.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart,
    coalesce(blocked_on, '') LIKE 'hold:%' AS is_held
FROM run WHERE gate_job = ANY(:ids)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    AND due_at <= :now
ORDER BY seq;

-- name: count_at_gate
-- Runs of jobs that got a limit count from now on, if they hold a slot.
UPDATE run SET gate_job = job_id
WHERE gate_job IS NULL AND seq IN (SELECT seq FROM active_run WHERE coalesce(job_id, '') = ANY(:ids)
    AND state IN ('QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN'));

-- name: waiting_runs
-- Runs that wait on this key, oldest first.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND seq > :after ORDER BY seq LIMIT :limit;

-- name: waiting_triggered_runs
-- The same, without those that a schedule asked for.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND trigger <> 'schedule' AND seq > :after
ORDER BY seq LIMIT :limit;

-- name: waited_keys
-- Keys after the given one that at least one run waits on.
SELECT DISTINCT blocked_on AS key FROM run WHERE state = 'BLOCKED' AND blocked_on > :after
ORDER BY blocked_on LIMIT :limit;

-- name: queue_run
-- Every gate passed.
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL, queued_at = :now,
    gate_job = job_id
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED');

-- name: block_run
-- A gate holds it.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons, eligible_at = NULL,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: block_queued_runs
-- A gate holds what was queued of a job.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE state = 'QUEUED' AND coalesce(job_id, '') = :job
RETURNING id, chain;

-- name: tell_waiters
-- What these runs wait for has changed, such as the end of a pause.
UPDATE run SET reasons = :reasons WHERE state = 'BLOCKED' AND blocked_on = :key;

-- name: move_waiters
-- The gate that holds these runs is another one now.
UPDATE run SET blocked_on = :key, reasons = :reasons
WHERE state = 'BLOCKED' AND blocked_on = :old_key
    AND CASE WHEN trigger = 'schedule' THEN 1 ELSE 0 END = :is_scheduled
    AND coalesce(backfill, '') = :backfill;

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
SELECT id, seq, job_id, job, job_version, state, attempt, session, result, failures, losses, delivery,
    chain, capacity, expected, cancel_at, deadline_at, claimed_at, started_at, first_started_at,
    release_at, backfill, gate_job, cart, keys, shape
FROM run WHERE id = ANY(:ids);

-- name: reported_runs
-- How the latest attempts of these runs stand.
SELECT id, attempt, session, result FROM run WHERE id = ANY(:ids);

-- name: gates_of_runs
-- The jobs at whose gates these runs count.
SELECT DISTINCT gate_job AS job_id FROM run WHERE id = ANY(:ids) AND gate_job IS NOT NULL;

-- name: gated_runs
-- Which of these runs count at a gate, and at whose.
SELECT id, gate_job FROM run WHERE id = ANY(:ids) AND gate_job IS NOT NULL;

-- name: jobs_of_runs
-- The jobs of these runs.
SELECT DISTINCT job_id FROM run WHERE id = ANY(:ids);

-- name: waiting_runs_of_paused_jobs
-- What the pause of these jobs holds.
SELECT id FROM active_run
WHERE coalesce(job_id, '') IN (SELECT job.id FROM job WHERE job.id = ANY(:ids) AND job.paused = 1)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: overdue_runs
-- Waiting runs whose deadline has passed. While a cart holds a run, its time stands still.
SELECT id, job_id FROM run
WHERE deadline_at IS NOT NULL AND deadline_at <= :now AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
    AND coalesce(blocked_on, '') NOT LIKE 'cart:%'
ORDER BY deadline_at LIMIT :limit;

-- name: dropped_runs
-- Waiting runs that may not start any more, so late is it.
SELECT id, job_id, drop_at, late_at FROM run
WHERE drop_at IS NOT NULL AND drop_at <= :now AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
ORDER BY drop_at LIMIT :limit;

-- name: judge_lateness
-- Whether runs missed their objective, once that can be told. What ended before, without a start,
-- did not.
UPDATE run SET is_late = CASE WHEN coalesce(first_started_at, ended_at) <= late_at THEN 0 ELSE 1 END
WHERE seq IN (SELECT seq FROM run WHERE late_at IS NOT NULL AND is_late IS NULL AND late_at < :now
    ORDER BY late_at LIMIT :limit)
RETURNING id, job, is_late;

-- name: next_eligible
-- When the next waiting run may be released.
SELECT min(eligible_at) AS eligible_at FROM run WHERE state = 'SCHEDULED';

-- name: eligible_jobs
-- The jobs and carts of runs whose time has come.
SELECT DISTINCT job_id, cart FROM (SELECT job_id, cart FROM run WHERE state = 'SCHEDULED' AND eligible_at <= :now
    ORDER BY eligible_at, seq LIMIT :limit) AS eligible;

-- name: eligible_runs
-- Runs whose time has come.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape, previous_due, release_at
FROM run WHERE state = 'SCHEDULED' AND eligible_at <= :now
ORDER BY eligible_at, seq LIMIT :limit;

-- name: claim_runs
-- Give runs to a session, each as a new attempt with nothing to tell yet.
UPDATE run SET state = 'CLAIMED', attempt = attempt + 1, session = :session, claimed_at = :now,
    capacity = :capacity, started_at = NULL, result = NULL, cause = '', message = '', exit_code = NULL,
    signal = NULL, steps = NULL, progress = NULL, cpu_seconds = 0, max_memory = 0, output = NULL,
    output_state = 'none', output_bytes = 0, output_lines = 0, truncated = 0
WHERE seq = ANY(:seqs) AND state = 'QUEUED'
RETURNING seq, id, attempt, job_id, job_version, due_at, deadline_at, inputs, cart, item;

-- name: named_runs
-- Which of these runs a worker of a pool may take now.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE id = ANY(:ids) AND state = 'QUEUED' AND pool = :pool AND shape = ANY(:shapes)
ORDER BY id LIMIT :limit;

-- name: any_queued
-- One of these runs that waits for a worker.
SELECT id FROM run WHERE id = ANY(:ids) AND state = 'QUEUED' LIMIT 1;

-- name: start_runs
-- Execution begins.
UPDATE run SET state = 'PROCESSING', started_at = :started_at,
    first_started_at = coalesce(first_started_at, :started_at)
WHERE id = :id AND state = 'CLAIMED' AND attempt = :attempt AND session = :session;

-- name: complete_runs
-- Attempts that ended well and have little to tell: by far the most frequent end, so it takes one
-- statement.
UPDATE run SET state = 'COMPLETED', result = 'COMPLETED', outputs = report.outputs,
    cpu_seconds = report.cpu_seconds,
    started_at = CASE WHEN report.started_at < claimed_at THEN claimed_at ELSE report.started_at END,
    first_started_at = coalesce(first_started_at,
        CASE WHEN report.started_at < claimed_at THEN claimed_at ELSE report.started_at END),
    ended_at = CASE WHEN report.ended_at < claimed_at THEN claimed_at ELSE report.ended_at END
FROM (SELECT value ->> 'id' AS id, value ->> 'attempt' AS attempt, value ->> 'started_at' AS started_at,
        value ->> 'ended_at' AS ended_at, value ->> 'outputs' AS outputs, value ->> 'cpu_seconds' AS cpu_seconds
    FROM json_each(:reports)) AS report
WHERE run.id = report.id AND run.attempt = report.attempt AND coalesce(run.session, '') = :session
    AND run.state IN ('CLAIMED', 'PROCESSING')
RETURNING run.id, run.attempt, job_id, job, chain, capacity, expected, claimed_at, run.started_at,
    run.ended_at, state, cause,
    CASE WHEN backfill IS NULL THEN run.first_started_at - release_at END AS delay, gate_job, cart, keys;

-- name: end_attempt
-- An attempt ended: the run is final, waits for the next attempt, or is unknown.
UPDATE run SET state = :state, cause = :cause, message = :message, eligible_at = :eligible_at,
    exit_code = :exit_code, signal = :signal, outputs = :outputs, failures = :failures, losses = :losses,
    started_at = :started_at, first_started_at = :first_started_at, ended_at = :ended_at, result = :result,
    steps = :steps, cpu_seconds = :cpu_seconds, max_memory = :max_memory, output = :output,
    output_state = :output_state, output_bytes = :output_bytes, output_lines = :output_lines,
    truncated = :truncated
WHERE seq = :seq AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: set_shape
-- What these runs ask of a worker has changed.
UPDATE run SET shape = :shape WHERE seq = ANY(:seqs);

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
-- Attempts of these runs that have ended and may be followed by another.
SELECT run_id, number, session, result FROM attempt WHERE run_id = ANY(:ids);

-- name: insert_late_result
-- A report that came after its lease had ended.
INSERT INTO late_result (run_id, attempt, session, received_at, result, message)
VALUES (:run, :attempt, :session, :now, :result, :message) ON CONFLICT DO NOTHING;

-- name: resolve_run
-- A person ends the doubt, and with it an older request to cancel.
UPDATE run SET state = :state, cause = :cause, eligible_at = :eligible_at, ended_at = :ended_at,
    failures = failures + :failures, cancel_at = NULL, cancel_by = ''
WHERE id = :id AND state = 'UNKNOWN';

-- name: set_progress
-- How far a run is.
UPDATE run SET progress = :progress
WHERE id = :id AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: count_ends
-- How many runs of a job ended in a state.
INSERT INTO tally (job, state, count) VALUES (:job, :state, :count)
ON CONFLICT (job, state) DO UPDATE SET count = tally.count + excluded.count;

-- name: count_delays
-- How late runs of a pool had started, by bucket.
INSERT INTO start_delay (pool, up_to, count, seconds) VALUES (:pool, :up_to, :count, :seconds)
ON CONFLICT (pool, up_to) DO UPDATE SET count = start_delay.count + excluded.count,
    seconds = start_delay.seconds + excluded.seconds;

-- name: find_answers
-- The first answers to keys of callers.
SELECT key, digest, answer FROM idempotency WHERE key = ANY(:keys);

-- name: keep_answers
-- Remember answers to keys of callers, each if it is the first one.
INSERT INTO idempotency (key, digest, answer, created_at)
SELECT value ->> 'key', value ->> 'digest', value ->> 'answer', :now FROM json_each(:answers) WHERE true
ON CONFLICT (key) DO NOTHING RETURNING key;
