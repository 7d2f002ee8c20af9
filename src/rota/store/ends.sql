-- name: sum_chunks
-- How much of the output of attempts has arrived.
SELECT run_id, attempt, CAST(sum(bytes) AS BIGINT) AS bytes, CAST(sum(lines) AS BIGINT) AS lines
FROM output_chunk
WHERE run_id = ANY(:ids) GROUP BY run_id, attempt;

-- name: reported_runs
-- How the latest attempts of these runs stand.
SELECT id, project, attempt, session, result FROM run WHERE id = ANY(:ids);

-- name: gated_runs
-- Which of these runs count at a gate, and at whose.
SELECT id, gate_job FROM run WHERE id = ANY(:ids) AND gate_job IS NOT NULL;

-- name: complete_runs
-- Attempts that completed and have no more to tell: by far the most frequent end, so it takes one
-- statement. Start and end are of one clock: where that is behind, they move together, but not beyond now.
-- rows: id, number, started_at, ended_at, cpu_micros, outputs
WITH report AS MATERIALIZED (
    SELECT value ->> 0 AS id, value ->> 1 AS number, value ->> 2 AS started_at, value ->> 3 AS ended_at,
        value ->> 4 AS cpu_micros, value ->> 5 AS outputs
    FROM json_each(:rows))
UPDATE run SET state = 'COMPLETED', result = 'COMPLETED', outputs = report.outputs,
    cpu_seconds = report.cpu_micros / 1e6,
    started_at = max(report.started_at, claimed_at),
    first_started_at = coalesce(first_started_at, max(report.started_at, claimed_at)),
    ended_at = max(claimed_at, report.started_at,
        min(report.ended_at + max(claimed_at - report.started_at, 0), :now))
FROM report
WHERE run.id = report.id AND run.attempt = report.number AND coalesce(run.session, '') = :session
    AND run.state IN ('CLAIMED', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1)
RETURNING project, job_id, job, chain, capacity, gate_job, run.id, run.attempt, expected,
    run.ended_at - run.started_at AS duration,
    CASE WHEN backfill IS NULL THEN run.first_started_at - release_at END AS delay, cart, keys;

-- name: end_attempt
-- An attempt ended: the run is final, waits for the next attempt, or is unknown.
-- many: state text, cause text, message text, eligible_at bigint, exit_code bigint, signal bigint,
-- many: outputs text, failures integer, losses integer, started_at bigint, first_started_at bigint,
-- many: ended_at bigint, result text, steps text, cpu_seconds float8, max_memory bigint,
-- many: output bytea, output_state text, output_bytes bigint, output_lines bigint,
-- many: truncated integer, seq bigint, attempt integer, session text
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
-- Attempts of these runs that have ended and may be followed by another.
SELECT run_id, number, session, result FROM attempt WHERE run_id = ANY(:ids);

-- name: insert_late_result
-- A report that came after its lease had ended.
-- many: run text, attempt integer, session text, now bigint, result text, message text
INSERT INTO late_result (run_id, attempt, session, received_at, result, message)
VALUES (:run, :attempt, :session, :now, :result, :message) ON CONFLICT DO NOTHING;

-- name: awaited_jobs
-- Which of these jobs somebody waits for the runs of: their own schedules, or jobs that follow them.
-- Those are told by the last word for an end that they follow: `completed` is the first, so that
-- any other one tells that not only completed runs count.
SELECT job_id, waits, followed FROM (
    SELECT schedule.job_id, schedule.waits, (SELECT dependency.ends FROM job
        JOIN dependency ON dependency.project = job.project AND dependency.upstream = job.name
        WHERE job.id = schedule.job_id ORDER BY dependency.ends DESC LIMIT 1) AS followed
    FROM schedule WHERE schedule.job_id = ANY(:ids)) AS awaited
WHERE waits = 1 OR followed IS NOT NULL;
