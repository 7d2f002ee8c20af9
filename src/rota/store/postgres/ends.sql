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
-- statement. Start and end are of one clock: where that is behind, they move together.
UPDATE run SET state = 'COMPLETED', result = 'COMPLETED', outputs = report.outputs,
    cpu_seconds = report.cpu_seconds,
    started_at = CASE WHEN report.started_at < claimed_at THEN claimed_at ELSE report.started_at END,
    first_started_at = coalesce(first_started_at,
        CASE WHEN report.started_at < claimed_at THEN claimed_at ELSE report.started_at END),
    ended_at = CASE WHEN report.started_at < claimed_at
        THEN report.ended_at + claimed_at - report.started_at
        WHEN report.ended_at < claimed_at THEN claimed_at ELSE report.ended_at END
FROM json_to_recordset(CAST(:reports AS TEXT)::json) AS report (id text, attempt integer,
    started_at bigint, ended_at bigint, outputs text, cpu_seconds float8)
WHERE run.id = report.id AND run.attempt = report.attempt AND coalesce(run.session, '') = :session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
RETURNING run.id, run.attempt, job_id, job, chain, capacity, expected, claimed_at, run.started_at,
    run.ended_at, state, cause,
    CASE WHEN backfill IS NULL THEN run.first_started_at - release_at END AS delay, gate_job, cart, keys;

-- name: set_expected_seconds
-- The moving average of a job's durations. A job that somebody else is changing learns another time.
UPDATE job SET expected_seconds = learned.seconds
FROM unnest(:seconds::float8[], :id::text[]) AS learned (seconds, id)
WHERE job.id = learned.id AND job.id IN (SELECT free.id FROM job AS free
    WHERE free.id = ANY(:id::text[]) FOR NO KEY UPDATE SKIP LOCKED);
