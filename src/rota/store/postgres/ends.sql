-- Written around a column, coalesce keeps it out of the access path: what a batch changes is found by
-- its key, row by row in the order given, however few runs seem to be in that state.

-- name: keep_shape
-- A demand on workers that nobody forgets meanwhile.
INSERT INTO shape (id) SELECT DISTINCT id FROM unnest(:id::text[]) AS new (id) ORDER BY id
ON CONFLICT (id) DO UPDATE SET id = excluded.id;

-- name: lock_shapes
-- Demands that are to be forgotten: no run begins to make them meanwhile.
SELECT FROM shape WHERE id = ANY(:ids) ORDER BY id FOR UPDATE;

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

-- name: set_expected_seconds
-- The moving average of a job's durations. A job that somebody else is changing learns another time.
UPDATE job SET expected_seconds = learned.seconds
FROM unnest(:seconds::float8[], :id::text[]) AS learned (seconds, id)
WHERE job.id = learned.id AND job.id IN (SELECT free.id FROM job AS free
    WHERE free.id = ANY(:id::text[]) FOR NO KEY UPDATE SKIP LOCKED);
