-- name: retry_items
-- The same are to run once more, with new versions of their jobs where these are given.
UPDATE cart_item SET state = 'PENDING', cause = '',
    job_version = coalesce((CAST(:versions AS TEXT)::jsonb ->> job_id)::integer, job_version)
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause);
