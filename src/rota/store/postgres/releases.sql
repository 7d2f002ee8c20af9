-- name: bound_wait
-- So long a run may wait where it is.
UPDATE run SET drop_at = least(run.drop_at, bound.drop_at)
FROM unnest(:drop_at::bigint[], :id::text[]) AS bound (drop_at, id)
WHERE run.id = bound.id AND coalesce(run.state, '') = 'BLOCKED';
