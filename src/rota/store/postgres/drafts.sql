-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) SELECT DISTINCT id FROM unnest(:id::text[]) AS new (id) ORDER BY id
ON CONFLICT DO NOTHING;
