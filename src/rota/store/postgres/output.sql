-- name: insert_chunk
-- A chunk of output that is in the blob store.
INSERT INTO output_chunk (run_id, attempt, number, session, first_line, lines, bytes, first_at, last_at, key)
SELECT * FROM unnest(:run::text[], :attempt::integer[], :number::integer[], :session::text[],
    :first_line::bigint[], :lines::bigint[], :bytes::bigint[], :first_at::bigint[], :last_at::bigint[],
    :key::text[])
ON CONFLICT DO NOTHING;
