-- Whoever looks for runs that wait for a key skips those that others are about to change.

-- name: forget_shared_keys
-- Those of these keys of which nobody has or wants anything: it is as if they had never been used.
DELETE FROM shared_key WHERE key IN (SELECT key FROM shared_key
    WHERE key = ANY(:keys) AND level IS NULL
        AND NOT EXISTS (SELECT 1 FROM run_key WHERE run_key.key = shared_key.key)
    ORDER BY key FOR UPDATE SKIP LOCKED);

-- name: run_key_page
-- Who has or may take keys, from a place on.
SELECT page.key, page.seq, run.state FROM (SELECT key, seq FROM run_key
    WHERE (key, seq) > (:after_key, :after_seq) ORDER BY key, seq LIMIT :limit) AS page
LEFT JOIN run ON run.seq = page.seq ORDER BY page.key, page.seq;

-- name: forget_run_keys
-- Of these runs, those that have nothing, wait for no worker, and are not about to.
DELETE FROM run_key WHERE key = ANY(:keys) AND seq IN (SELECT seq FROM run
    WHERE seq = ANY(:seqs) AND coalesce(state, '') NOT IN ('QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    FOR NO KEY UPDATE SKIP LOCKED);

-- name: key_candidates
-- The first of those who wait for each of these keys, from each of these priorities down.
SELECT wanted.key, waiting.*
FROM json_to_recordset(CAST(:keys AS TEXT)::json) AS wanted (key text, priority integer)
CROSS JOIN LATERAL (SELECT id, seq, run.priority, created_at, job_id, cart FROM run
    WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on >= wanted.key AND blocked_on <= wanted.key
        AND run.priority <= wanted.priority
    ORDER BY blocked_on, run.priority DESC, seq LIMIT :limit) AS waiting;

-- name: key_waiters_to_release
-- Those of these runs that still wait for one of these keys.
SELECT * FROM run
WHERE id = ANY(:ids) AND coalesce(state, '') = 'BLOCKED' AND coalesce(blocked_on, '') = ANY(:keys)
FOR NO KEY UPDATE SKIP LOCKED;
