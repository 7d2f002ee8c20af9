-- Written around a column, coalesce keeps it out of the access path: what a batch changes is found by
-- its key, row by row in the order given, however few runs seem to be in that state.

-- name: insert_run
-- A run, in the state the gates gave it.
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, cause, due_at, release_at,
    eligible_at, deadline_at, late_at, drop_at, priority, pool, chain, shape, delivery, max_attempts,
    expected, blocked_on, reasons, inputs, created_by, created_at, queued_at, ended_at, retry_of, gate_job,
    backfill, caught_up, cart, item, follows, previous_due, keys, timeout)
SELECT * FROM unnest(:id::text[], :project::text[], :job_id::text[], :job::text[],
    :job_version::integer[], :trigger::text[], :state::text[], :cause::text[], :due_at::bigint[],
    :release_at::bigint[], :eligible_at::bigint[], :deadline_at::bigint[], :late_at::bigint[],
    :drop_at::bigint[], :priority::integer[], :pool::text[], :chain::text[], :shape::text[],
    :delivery::text[], :max_attempts::integer[], :expected::float8[], :blocked_on::text[],
    :reasons::text[], :inputs::text[], :created_by::text[], :created_at::bigint[], :queued_at::bigint[],
    :ended_at::bigint[], :retry_of::text[], :gate_job::text[], :backfill::text[],
    :caught_up::integer[], :cart::text[], :item::text[], :follows::text[], :previous_due::bigint[],
    :keys::text[], :timeout::bigint[]);

-- name: runs_to_change
-- What decisions about these runs need, locked.
SELECT id, seq, job_id, job, job_version, state, attempt, session, result, failures, losses, delivery,
    chain, capacity, expected, cancel_at, deadline_at, claimed_at, started_at, first_started_at,
    release_at, backfill, gate_job, cart, keys, shape
FROM run WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;

-- name: waiting_runs
-- Runs that wait on this key and that nobody else is about to change, oldest first.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND seq > :after ORDER BY seq LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

-- name: waiting_triggered_runs
-- The same, without those that a schedule asked for.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape
FROM run
WHERE state = 'BLOCKED' AND blocked_on = :key AND trigger <> 'schedule' AND seq > :after
ORDER BY seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: eligible_runs
-- Runs whose time has come and that nobody else is about to change.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, chain, pool, priority, created_at,
    keys, shape, previous_due, release_at
FROM run WHERE state = 'SCHEDULED' AND eligible_at <= :now
ORDER BY eligible_at, seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: judge_lateness
-- Whether runs missed their objective, once that can be told. What ended before, without a start,
-- did not.
UPDATE run SET is_late = CASE WHEN coalesce(first_started_at, ended_at) <= late_at THEN 0 ELSE 1 END
WHERE seq IN (SELECT seq FROM run WHERE late_at IS NOT NULL AND is_late IS NULL AND late_at < :now
    ORDER BY late_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, job, is_late;

-- name: queue_run
-- Every gate passed.
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL,
    queued_at = free.now, gate_job = job_id
FROM unnest(:now::bigint[], :id::text[]) AS free (now, id)
WHERE run.id = free.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED');

-- name: block_run
-- A gate holds it.
UPDATE run SET state = 'BLOCKED', blocked_on = held.key, reasons = held.reasons, eligible_at = NULL,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
FROM unnest(:key::text[], :reasons::text[], :id::text[]) AS held (key, reasons, id)
WHERE run.id = held.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: end_waiting_run
-- A waiting run ends without an attempt: skipped, missed, cancelled or past its deadline.
UPDATE run SET state = over.state, cause = over.cause, ended_at = over.now, blocked_on = NULL,
    reasons = NULL, eligible_at = NULL
FROM unnest(:state::text[], :cause::text[], :now::bigint[], :id::text[])
    AS over (state, cause, now, id)
WHERE run.id = over.id AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: named_runs
-- Which of these runs a worker of a pool may take now; what somebody else has in hand is his.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE id = ANY(:ids) AND state = 'QUEUED' AND pool = :pool AND shape = ANY(:shapes)
ORDER BY id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: claim_runs
-- Give runs to a session, each as a new attempt with nothing to tell yet.
UPDATE run SET state = 'CLAIMED', attempt = attempt + 1, session = :session, claimed_at = :now,
    capacity = :capacity, started_at = NULL, result = NULL, cause = '', message = '', exit_code = NULL,
    signal = NULL, steps = NULL, progress = NULL, cpu_seconds = 0, max_memory = 0, output = NULL,
    output_state = 'none', output_bytes = 0, output_lines = 0, truncated = 0
WHERE seq = ANY(:seqs) AND coalesce(state, '') = 'QUEUED'
RETURNING seq, id, attempt, job_id, job_version, due_at, deadline_at, inputs, cart, item;

-- name: start_runs
-- Execution begins.
UPDATE run SET state = 'PROCESSING', started_at = begun.started_at,
    first_started_at = coalesce(first_started_at, begun.started_at)
FROM unnest(:started_at::bigint[], :id::text[], :attempt::integer[], :session::text[])
    AS begun (started_at, id, attempt, session)
WHERE run.id = begun.id AND coalesce(run.state, '') = 'CLAIMED' AND run.attempt = begun.attempt
    AND run.session = begun.session;

-- name: complete_runs
-- Attempts that ended well and have little to tell: by far the most frequent end, so it takes one
-- statement.
UPDATE run SET state = 'COMPLETED', result = 'COMPLETED', outputs = report.outputs,
    cpu_seconds = report.cpu_seconds,
    started_at = CASE WHEN report.started_at < claimed_at THEN claimed_at ELSE report.started_at END,
    first_started_at = coalesce(first_started_at,
        CASE WHEN report.started_at < claimed_at THEN claimed_at ELSE report.started_at END),
    ended_at = CASE WHEN report.ended_at < claimed_at THEN claimed_at ELSE report.ended_at END
FROM json_to_recordset(CAST(:reports AS TEXT)::json) AS report (id text, attempt integer,
    started_at bigint, ended_at bigint, outputs text, cpu_seconds float8)
WHERE run.id = report.id AND run.attempt = report.attempt AND coalesce(run.session, '') = :session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
RETURNING run.id, run.attempt, job_id, job, chain, capacity, expected, claimed_at, run.started_at,
    run.ended_at, state, cause,
    CASE WHEN backfill IS NULL THEN run.first_started_at - release_at END AS delay, gate_job, cart, keys;

-- name: end_attempt
-- An attempt ended: the run is final, waits for the next attempt, or is unknown.
UPDATE run SET state = ended.state, cause = ended.cause, message = ended.message,
    eligible_at = ended.eligible_at, exit_code = ended.exit_code, signal = ended.signal,
    outputs = ended.outputs, failures = ended.failures, losses = ended.losses,
    started_at = ended.started_at, first_started_at = ended.first_started_at, ended_at = ended.ended_at,
    result = ended.result, steps = ended.steps, cpu_seconds = ended.cpu_seconds,
    max_memory = ended.max_memory, output = ended.output, output_state = ended.output_state,
    output_bytes = ended.output_bytes, output_lines = ended.output_lines, truncated = ended.truncated
FROM unnest(:state::text[], :cause::text[], :message::text[], :eligible_at::bigint[],
        :exit_code::bigint[], :signal::bigint[], :outputs::text[], :failures::integer[],
        :losses::integer[], :started_at::bigint[], :first_started_at::bigint[], :ended_at::bigint[],
        :result::text[], :steps::text[], :cpu_seconds::float8[], :max_memory::bigint[],
        :output::bytea[], :output_state::text[], :output_bytes::bigint[], :output_lines::bigint[],
        :truncated::integer[], :seq::bigint[], :attempt::integer[], :session::text[])
    AS ended (state, cause, message, eligible_at, exit_code, signal, outputs, failures, losses,
        started_at, first_started_at, ended_at, result, steps, cpu_seconds, max_memory, output,
        output_state, output_bytes, output_lines, truncated, seq, attempt, session)
WHERE run.seq = ended.seq AND run.attempt = ended.attempt AND run.session = ended.session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING');

-- name: insert_late_result
-- A report that came after its lease had ended.
INSERT INTO late_result (run_id, attempt, session, received_at, result, message)
SELECT * FROM unnest(:run::text[], :attempt::integer[], :session::text[], :now::bigint[],
    :result::text[], :message::text[])
ON CONFLICT DO NOTHING;

-- name: set_progress
-- How far a run is.
UPDATE run SET progress = told.progress
FROM unnest(:progress::text[], :id::text[], :attempt::integer[], :session::text[])
    AS told (progress, id, attempt, session)
WHERE run.id = told.id AND run.attempt = told.attempt AND run.session = told.session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING');

-- name: count_ends
-- How many runs of a job ended in a state.
INSERT INTO tally (job, state, count)
SELECT * FROM unnest(:job::text[], :state::text[], :count::bigint[]) AS new (job, state, count)
ORDER BY job, state
ON CONFLICT (job, state) DO UPDATE SET count = tally.count + excluded.count;

-- name: count_delays
-- How late runs of a pool had started, by bucket.
INSERT INTO start_delay (pool, up_to, count, seconds)
SELECT * FROM unnest(:pool::text[], :up_to::float8[], :count::bigint[], :seconds::float8[])
    AS new (pool, up_to, count, seconds)
ORDER BY pool, up_to
ON CONFLICT (pool, up_to) DO UPDATE SET count = start_delay.count + excluded.count,
    seconds = start_delay.seconds + excluded.seconds;

-- name: keep_answers
-- Remember answers to keys of callers, each if it is the first one.
INSERT INTO idempotency (key, digest, answer, created_at)
SELECT key, digest, answer, :now
FROM json_to_recordset(CAST(:answers AS TEXT)::json) AS new (key text, digest text, answer text) ORDER BY key
ON CONFLICT (key) DO NOTHING RETURNING key;
