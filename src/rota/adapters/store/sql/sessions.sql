-- name: session
-- A worker's presence, locked.
SELECT * FROM session WHERE id = :id;

-- name: insert_session
-- A worker arrives.
INSERT INTO session (id, worker, pool, slots, labels, functions, guard_mode, version, lease,
    registered_at, expires_at)
VALUES (:id, :worker, :pool, :slots, :labels, :functions, :guard_mode, :version, :lease,
    :now, :expires_at);

-- name: sessions_of_worker
-- Live presences of a worker.
SELECT id FROM session WHERE worker = :worker AND alive = 1;

-- name: renew_session
-- The lease is prolonged, if the session is still alive.
UPDATE session SET expires_at = :now + lease, beats = beats + 1, stopping = :stopping
WHERE id = :id AND alive = 1
RETURNING id;

-- name: expired_sessions
-- Sessions whose lease has ended, locked.
SELECT id, worker, beats FROM session WHERE id = ANY(:ids) AND alive = 1 AND expires_at < :now;

-- name: end_sessions
-- These sessions are over.
UPDATE session SET alive = 0 WHERE id = ANY(:ids) AND alive = 1;

-- name: held_runs
-- What sessions hold.
SELECT id, attempt, session, cancel_at FROM run
WHERE session = ANY(:sessions) AND state IN ('CLAIMED', 'PROCESSING');

-- name: orphaned_sessions
-- Sessions that are over or missing, but still hold runs.
SELECT DISTINCT run.session AS id FROM run LEFT JOIN session ON session.id = run.session
WHERE run.state IN ('CLAIMED', 'PROCESSING') AND coalesce(session.alive, 0) = 0;

-- name: count_held
-- How many attempts a session holds.
SELECT count(*) AS held FROM run WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: select_sessions
-- Workers, the newest first.
SELECT session.*, (SELECT count(*) FROM run WHERE run.session = session.id
    AND run.state IN ('CLAIMED', 'PROCESSING')) AS held
FROM session WHERE (:any OR alive = 1) ORDER BY registered_at DESC LIMIT :limit;

-- name: count_sessions
-- Workers by presence and pool.
SELECT pool, alive, count(*) AS count FROM session WHERE alive = 1 GROUP BY pool, alive;
