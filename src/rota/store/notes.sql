-- name: tell_notes
-- How attempts stand that go on, of those that the session has. What was told later stays. No run is locked.
-- rows: id, number, told_at, first_step, steps, output_lines, output_bytes, last_line
WITH told AS MATERIALIZED (
    SELECT value ->> 0 AS id, value ->> 1 AS number, value ->> 2 AS told_at, value ->> 3 AS first_step,
        value ->> 4 AS steps, value ->> 5 AS output_lines, value ->> 6 AS output_bytes, value ->> 7 AS last_line
    FROM json_each(:rows))
INSERT INTO run_note (run_id, attempt, told_at, first_step, steps, output_lines, output_bytes, last_line)
SELECT run.id, run.attempt, told.told_at, told.first_step, told.steps, told.output_lines, told.output_bytes,
    told.last_line
FROM told CROSS JOIN run ON run.id = told.id AND run.attempt = told.number
WHERE coalesce(run.session, '') = :session AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1)
ON CONFLICT (run_id) DO UPDATE SET attempt = excluded.attempt, told_at = excluded.told_at,
    first_step = excluded.first_step, steps = excluded.steps, output_lines = excluded.output_lines,
    output_bytes = excluded.output_bytes, last_line = excluded.last_line
WHERE excluded.attempt > run_note.attempt OR excluded.told_at >= run_note.told_at
RETURNING run_id, attempt;

-- name: select_notes
-- What is known of the attempts at these runs that go on.
SELECT run_note.* FROM run_note
JOIN run ON run.id = run_note.run_id AND run.attempt = run_note.attempt
WHERE run_note.run_id = ANY(:ids) AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING');

-- name: forget_notes
-- Delete notes of attempts that are over: no end has to.
DELETE FROM run_note WHERE run_id IN (
    SELECT run_note.run_id FROM run_note LEFT JOIN run ON run.id = run_note.run_id
    WHERE run.id IS NULL OR run.attempt <> run_note.attempt
        OR coalesce(run.state, '') NOT IN ('CLAIMED', 'PROCESSING')
    LIMIT :limit)
RETURNING run_id;
