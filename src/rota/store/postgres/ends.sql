-- Written around a column, coalesce keeps it out of the access path: what a batch changes is found by
-- its key, row by row in the order given, however few runs seem to be in that state.

-- name: complete_runs
-- Attempts that completed and have no more to tell: by far the most frequent end, so it takes one
-- statement. Start and end are of one clock: where that is behind, they move together, but not beyond now.
UPDATE run SET state = 'COMPLETED', result = 'COMPLETED', outputs = report.outputs,
    cpu_seconds = report.cpu_micros::float8 / 1e6::float8,
    started_at = greatest(report.started_at, claimed_at),
    first_started_at = coalesce(first_started_at, greatest(report.started_at, claimed_at)),
    ended_at = greatest(claimed_at, report.started_at,
        least(report.ended_at + greatest(claimed_at - report.started_at, 0), :now))
FROM unnest(:id::text[], :number::text::bigint[], :started_at::text::bigint[],
        :ended_at::text::bigint[], :cpu_micros::text::bigint[], :outputs::text[])
    AS report (id, number, started_at, ended_at, cpu_micros, outputs)
WHERE run.id = report.id AND run.attempt = report.number AND coalesce(run.session, '') = :session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1)
RETURNING project, job_id, job, chain, capacity, gate_job, run.id, run.attempt, expected,
    run.ended_at - run.started_at AS duration,
    CASE WHEN backfill IS NULL THEN run.first_started_at - release_at END AS delay, cart, keys;
