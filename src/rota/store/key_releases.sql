-- name: changed_declarations
-- The latest of those that were made or changed after an instant.
SELECT kind, project, name, document FROM declaration WHERE updated_at > :since
ORDER BY updated_at DESC LIMIT :limit;

-- name: shared_key_page
-- Keys that somebody takes of, or is charged for, after one.
SELECT key FROM shared_key WHERE key > :after UNION SELECT key FROM key_charge WHERE key > :after
ORDER BY key LIMIT :limit;

-- name: drop_shared_keys
-- Keys that the transaction holds, and that stand as if they had never been used.
DELETE FROM shared_key WHERE key = ANY(:keys);

-- name: forget_shared_keys
-- Those of these keys of which nobody has or wants anything: it is as if they had never been used.
DELETE FROM shared_key WHERE key = ANY(:keys) AND level IS NULL
    AND NOT EXISTS (SELECT 1 FROM run_key WHERE run_key.key = shared_key.key);

-- name: run_key_page
-- Who has or may take keys, from a place on.
SELECT page.key, page.seq, run.state FROM (SELECT key, seq FROM run_key
    WHERE key >= :after_key AND (key > :after_key OR seq > :after_seq)
    ORDER BY key, seq LIMIT :limit) AS page
LEFT JOIN run ON run.seq = page.seq ORDER BY page.key, page.seq;

-- name: forget_run_keys
-- Of these runs, those that have nothing and wait for no worker.
DELETE FROM run_key WHERE key = ANY(:keys) AND seq IN (SELECT seq FROM run
    WHERE seq = ANY(:seqs) AND state NOT IN ('QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN'));

-- name: waited_shared_keys
-- Keys between two ends that runs wait for, each found from the one before it.
WITH RECURSIVE waited (key) AS (
    SELECT (SELECT blocked_on FROM run
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on > :after AND blocked_on < :until
        ORDER BY blocked_on LIMIT 1)
    UNION ALL
    SELECT (SELECT blocked_on FROM run
        WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on > waited.key AND blocked_on < :until
        ORDER BY blocked_on LIMIT 1)
    FROM waited WHERE waited.key IS NOT NULL)
SELECT key FROM waited WHERE key IS NOT NULL LIMIT :limit;

-- name: due_keys
-- Keys for which the time of somebody who waits has come, the latest first.
SELECT DISTINCT due.key FROM (SELECT blocked_on AS key FROM run
    WHERE state = 'BLOCKED' AND keys IS NOT NULL AND eligible_at <= :now
        AND (blocked_on LIKE 'rate:%' OR blocked_on LIKE 'quota:%')
    ORDER BY eligible_at DESC LIMIT :limit) AS due;

-- name: key_candidates
-- The first of those who wait for each of these keys, from each of these priorities down.
SELECT wanted.key, run.id, run.seq, run.priority, run.created_at, run.job_id, run.cart
FROM (SELECT value ->> 'key' AS key, value ->> 'priority' AS priority FROM json_each(:keys)) AS wanted
JOIN run ON run.seq IN (SELECT waiting.seq FROM run AS waiting
    WHERE waiting.state = 'BLOCKED' AND waiting.keys IS NOT NULL AND waiting.blocked_on = wanted.key
        AND waiting.priority <= wanted.priority
    ORDER BY waiting.priority DESC, waiting.seq LIMIT :limit);

-- name: key_waiters_to_release
-- Those of these runs that still wait for one of these keys.
SELECT * FROM run
WHERE id = ANY(:ids) AND state = 'BLOCKED' AND coalesce(blocked_on, '') = ANY(:keys);
