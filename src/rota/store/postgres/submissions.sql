-- name: keep_answers
-- Remember answers to keys of callers, each if it is the first one.
INSERT INTO idempotency (key, digest, answer, created_at)
SELECT key, digest, answer, :now
FROM json_to_recordset(CAST(:answers AS TEXT)::json) AS new (key text, digest text, answer text) ORDER BY key
ON CONFLICT (key) DO NOTHING RETURNING key;

-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id, worker) SELECT DISTINCT id, worker FROM unnest(:id::text[], :worker::text[]) AS new (id, worker)
ORDER BY id ON CONFLICT DO NOTHING;
