-- name: printing_fences
-- Attempts whose output a session may still send: those it holds, and ended ones that left some.
SELECT id, attempt FROM run
WHERE id = ANY(:ids) AND coalesce(session, '') = :session
    AND (state IN ('CLAIMED', 'PROCESSING') OR coalesce(output_state, '') = 'pending')
UNION SELECT run_id, number FROM attempt
WHERE run_id = ANY(:ids) AND coalesce(session, '') = :session
    AND coalesce(output_state, '') = 'pending';

-- name: insert_chunk
-- A chunk of output that is in the blob store.
-- many: run text, attempt integer, number integer, session text, first_line bigint, lines bigint,
-- many: bytes bigint, first_at bigint, last_at bigint, key text
INSERT INTO output_chunk (run_id, attempt, number, session, first_line, lines, bytes, first_at, last_at, key)
VALUES (:run, :attempt, :number, :session, :first_line, :lines, :bytes, :first_at, :last_at, :key)
ON CONFLICT DO NOTHING;

-- name: select_chunks
-- Where the output of an attempt lies.
SELECT * FROM output_chunk WHERE run_id = :run AND attempt = :attempt ORDER BY number;

-- name: select_inline_output
-- Small output, kept beside its attempt.
SELECT output FROM attempt WHERE run_id = :run AND number = :attempt
UNION ALL SELECT output FROM run WHERE id = :run AND attempt = :attempt;

-- name: settle_run_output
-- The output of ended attempts has arrived up to its last line. What was cut on the way is told.
UPDATE run SET output_state = 'stored', output_bytes = arrived.bytes, output_lines = arrived.lines,
    truncated = CASE WHEN arrived.lines < run.output_lines THEN 1 ELSE run.truncated END
FROM (SELECT run_id, attempt, sum(bytes) AS bytes, sum(lines) AS lines,
        max(first_line + lines) AS reached
    FROM output_chunk WHERE run_id = ANY(:ids) GROUP BY run_id, attempt) AS arrived
WHERE run.id = arrived.run_id AND run.attempt = arrived.attempt
    AND coalesce(run.output_state, '') = 'pending' AND arrived.reached >= run.output_lines;

-- name: settle_attempt_output
-- The same for attempts that were followed by another.
UPDATE attempt SET output_state = 'stored', output_bytes = arrived.bytes, output_lines = arrived.lines,
    truncated = CASE WHEN arrived.lines < attempt.output_lines THEN 1 ELSE attempt.truncated END
FROM (SELECT run_id, attempt AS number, sum(bytes) AS bytes, sum(lines) AS lines,
        max(first_line + lines) AS reached
    FROM output_chunk WHERE run_id = ANY(:ids) GROUP BY run_id, attempt) AS arrived
WHERE attempt.run_id = arrived.run_id AND attempt.number = arrived.number
    AND coalesce(attempt.output_state, '') = 'pending' AND arrived.reached >= attempt.output_lines;

-- name: tear_run_output
-- Nobody will send the rest of the output of these runs any more.
UPDATE run SET output_state = 'torn',
    output_bytes = (SELECT coalesce(sum(bytes), 0) FROM output_chunk
        WHERE run_id = run.id AND attempt = run.attempt),
    output_lines = (SELECT coalesce(sum(lines), 0) FROM output_chunk
        WHERE run_id = run.id AND attempt = run.attempt)
WHERE session = ANY(:sessions) AND output_state = 'pending';

-- name: tear_attempt_output
-- The same for attempts that were followed by another.
UPDATE attempt SET output_state = 'torn',
    output_bytes = (SELECT coalesce(sum(bytes), 0) FROM output_chunk
        WHERE output_chunk.run_id = attempt.run_id AND output_chunk.attempt = attempt.number),
    output_lines = (SELECT coalesce(sum(lines), 0) FROM output_chunk
        WHERE output_chunk.run_id = attempt.run_id AND output_chunk.attempt = attempt.number)
WHERE session = ANY(:sessions) AND output_state = 'pending';
