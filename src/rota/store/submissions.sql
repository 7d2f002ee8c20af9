-- name: show_runs
-- These runs, of any project.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids);

-- name: find_answers
-- The first answers to keys of callers.
SELECT key, digest, answer FROM idempotency WHERE key = ANY(:keys);

-- name: keep_answers
-- Remember answers to keys of callers, each if it is the first one.
INSERT INTO idempotency (key, digest, answer, created_at)
SELECT value ->> 'key', value ->> 'digest', value ->> 'answer', :now FROM json_each(:answers) WHERE true
ON CONFLICT (key) DO NOTHING RETURNING key;
