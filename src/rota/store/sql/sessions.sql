-- name: session
-- A worker's presence.
SELECT session.*, (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining
FROM session WHERE id = :id;

-- name: claiming_session
-- A presence that does not end meanwhile; its free slots are given away one claim after another.
SELECT session.* FROM session WHERE id = :id;

-- name: free_session
-- The same, if nobody else claims for it or is about to end it.
SELECT session.* FROM session WHERE id = :id;

-- name: insert_session
-- A worker arrives.
INSERT INTO session (id, worker, pool, slots, labels, functions, guard_mode, version, lease,
    registered_at, expires_at, server, resources)
VALUES (:id, :worker, :pool, :slots, :labels, :functions, :guard_mode, :version, :lease,
    :now, :expires_at, :server, :resources);

-- name: resume_session
-- A worker has connected anew to the session it had, if that is still alive and its own.
UPDATE session SET stream = stream + 1, server = :server, expires_at = :now + lease,
    beats = beats + 1, stopping = 0
WHERE id = :id AND worker = :worker AND pool = :pool AND alive = 1
RETURNING id;

-- name: live_session_of
-- A presence, if it is that worker's and not over.
SELECT id FROM session WHERE id = :id AND worker = :worker AND alive = 1;

-- name: renew_session
-- The lease is prolonged, if the session is still alive.
UPDATE session SET expires_at = :now + lease, beats = beats + 1, stopping = :stopping
WHERE id = :id AND alive = 1
RETURNING stream, (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining;

-- name: expired_sessions
-- Sessions whose lease has ended, locked.
SELECT id, worker, beats FROM session WHERE id = ANY(:ids) AND alive = 1 AND expires_at < :now;

-- name: end_sessions
-- These sessions are over.
UPDATE session SET alive = 0 WHERE id = ANY(:ids) AND alive = 1 RETURNING pool;

-- name: held_runs
-- What sessions hold.
SELECT id, attempt, session, cancel_at FROM run
WHERE session = ANY(:sessions) AND state IN ('CLAIMED', 'PROCESSING') ORDER BY seq;

-- name: orphaned_sessions
-- Sessions that are over or missing, but still hold runs, or output that nobody will send.
SELECT run.session AS id FROM run LEFT JOIN session ON session.id = run.session
WHERE run.state IN ('CLAIMED', 'PROCESSING') AND coalesce(session.alive, 0) = 0
UNION SELECT run.session FROM run LEFT JOIN session ON session.id = run.session
WHERE run.output_state = 'pending' AND coalesce(session.alive, 0) = 0
UNION SELECT attempt.session FROM attempt LEFT JOIN session ON session.id = attempt.session
WHERE attempt.output_state = 'pending' AND coalesce(session.alive, 0) = 0;

-- name: count_held
-- How many attempts a session holds, and whether its worker is to get more.
SELECT count(*) AS held, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: count_held_of
-- The same, if it holds no other runs than these.
SELECT count(*) AS held, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE seq = ANY(:seqs) AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: held_demands
-- What the attempts of a session take of its worker, and until when.
SELECT seq, shape, coalesce(started_at, claimed_at) AS began_at, timeout, expected FROM run
WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: held_shapes
-- The demands of what sessions hold, by how many attempts have the same.
SELECT session, shape, count(*) AS attempts FROM run
WHERE session = ANY(:sessions) AND state IN ('CLAIMED', 'PROCESSING') GROUP BY session, shape;

-- name: neighbours
-- Other workers of a pool that may get work, each as often as it holds different demands.
SELECT near.id, near.slots, near.resources, near.labels, near.functions,
    run.shape, count(run.seq) AS attempts
FROM (SELECT id, slots, resources, labels, functions FROM session
    WHERE pool = :pool AND alive = 1 AND stopping = 0 AND expires_at > :now AND id <> :session
        AND NOT EXISTS (SELECT 1 FROM drained_worker WHERE drained_worker.name = session.worker)
    LIMIT :limit) AS near
LEFT JOIN run ON run.session = near.id AND run.state IN ('CLAIMED', 'PROCESSING')
GROUP BY near.id, near.slots, near.resources, near.labels, near.functions, run.shape;

-- name: select_sessions
-- Workers, the newest first.
SELECT session.*, (SELECT count(*) FROM run WHERE run.session = session.id
    AND run.state IN ('CLAIMED', 'PROCESSING')) AS held,
    (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining
FROM session WHERE (:any = 1 OR alive = 1) ORDER BY registered_at DESC, id LIMIT :limit;

-- name: served_pools
-- The pools that have workers.
SELECT DISTINCT pool FROM session WHERE alive = 1 AND stopping = 0;

-- name: heartbeats
-- How often each live session was renewed.
SELECT id, beats, lease FROM session WHERE alive = 1;

-- name: forget_sessions
-- Presences that were over at the given time and left nothing to be settled. Those of a drained worker
-- stay, as its name is known by them.
DELETE FROM session WHERE id IN (SELECT session.id FROM session
    WHERE alive = 0 AND expires_at < :before
        AND NOT EXISTS (SELECT 1 FROM run
            WHERE run.session = session.id AND run.state IN ('CLAIMED', 'PROCESSING'))
        AND NOT EXISTS (SELECT 1 FROM run
            WHERE run.session = session.id AND run.output_state = 'pending')
        AND NOT EXISTS (SELECT 1 FROM attempt
            WHERE attempt.session = session.id AND attempt.output_state = 'pending')
        AND NOT EXISTS (SELECT 1 FROM drained_worker WHERE drained_worker.name = session.worker)
    LIMIT :limit)
RETURNING id;

-- name: count_sessions
-- Workers by presence and pool.
SELECT pool, alive, count(*) AS count FROM session WHERE alive = 1 GROUP BY pool, alive;

-- name: drain_worker
-- A worker gets nothing new, also in its next life.
INSERT INTO drained_worker (name, drained_by, drained_at) VALUES (:name, :actor, :now)
ON CONFLICT (name) DO NOTHING RETURNING name;

-- name: undrain_worker
-- A worker gets work again.
DELETE FROM drained_worker WHERE name = :name RETURNING name;

-- name: presences_of_worker
-- Where a worker is or was, the newest first.
SELECT id, pool, alive FROM session WHERE worker = :worker
ORDER BY alive DESC, registered_at DESC LIMIT :limit;
