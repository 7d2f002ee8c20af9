-- name: tell_notes
-- How attempts stand that go on, of those that the session has. What was told later stays. No run is locked.
INSERT INTO run_note (run_id, attempt, told_at, first_step, steps, output_lines, output_bytes, last_line)
SELECT run.id, run.attempt, told.told_at, told.first_step, told.steps, told.output_lines, told.output_bytes,
    told.last_line
FROM unnest(:id::text[], :number::text::bigint[], :told_at::text::bigint[], :first_step::text::integer[],
        :steps::text[], :output_lines::text::bigint[], :output_bytes::text::bigint[], :last_line::text[])
    AS told (id, number, told_at, first_step, steps, output_lines, output_bytes, last_line)
JOIN run ON run.id = told.id AND run.attempt = told.number
WHERE coalesce(run.session, '') = :session AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1)
ORDER BY run.id
ON CONFLICT (run_id) DO UPDATE SET attempt = excluded.attempt, told_at = excluded.told_at,
    first_step = excluded.first_step, steps = excluded.steps, output_lines = excluded.output_lines,
    output_bytes = excluded.output_bytes, last_line = excluded.last_line
WHERE excluded.attempt > run_note.attempt OR excluded.told_at >= run_note.told_at
RETURNING run_id, attempt;

-- name: forget_notes
-- Delete notes of attempts that are over: no end has to. Those that are just written are passed over.
DELETE FROM run_note WHERE run_id IN (
    SELECT run_note.run_id FROM run_note LEFT JOIN run ON run.id = run_note.run_id
    WHERE run.id IS NULL OR run.attempt <> run_note.attempt
        OR coalesce(run.state, '') NOT IN ('CLAIMED', 'PROCESSING')
    LIMIT :limit FOR UPDATE OF run_note SKIP LOCKED)
RETURNING run_id;
