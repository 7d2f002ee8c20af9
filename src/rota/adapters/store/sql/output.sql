-- name: live_fences
-- Attempts that a session may write about.
SELECT id, attempt FROM run
WHERE id = ANY(:ids) AND coalesce(session, '') = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: insert_chunk
-- A chunk of output that is in the blob store.
INSERT INTO output_chunk (run_id, attempt, number, session, first_line, lines, bytes, first_at, last_at, key)
VALUES (:run, :attempt, :number, :session, :first_line, :lines, :bytes, :first_at, :last_at, :key)
ON CONFLICT DO NOTHING;

-- name: select_chunks
-- Where the output of an attempt lies.
SELECT * FROM output_chunk WHERE run_id = :run AND attempt = :attempt ORDER BY number;

-- name: sum_chunks
-- How much of the output of attempts has arrived.
SELECT run_id, attempt, sum(bytes) AS bytes, sum(lines) AS lines FROM output_chunk
WHERE run_id = ANY(:ids) GROUP BY run_id, attempt;

-- name: select_inline_output
-- Small output, kept beside its attempt.
SELECT output FROM attempt WHERE run_id = :run AND number = :attempt
UNION ALL SELECT output FROM run WHERE id = :run AND attempt = :attempt;
