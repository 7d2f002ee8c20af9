-- name: runs_with_pending_output
-- Runs of which an attempt ended in these sessions, with output that is still on the worker.
SELECT id FROM run WHERE session = ANY(:sessions) AND output_state = 'pending'
UNION SELECT run_id FROM attempt WHERE session = ANY(:sessions) AND output_state = 'pending';

-- name: start_runs
-- Execution begins.
-- many: started_at bigint, id text, attempt integer, session text
UPDATE run SET state = 'PROCESSING', started_at = :started_at,
    first_started_at = coalesce(first_started_at, :started_at)
WHERE id = :id AND state = 'CLAIMED' AND attempt = :attempt AND session = :session;

-- name: note_commits
-- What the code of runs was fetched at; the first one stays.
-- many: fetched text, id text, attempt integer, session text
UPDATE run SET source_commit = :fetched
WHERE id = :id AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING')
    AND source_commit IS NULL;

-- name: job_types
-- Types of plug-ins that were ever offered.
SELECT * FROM job_type ORDER BY name;

-- name: keep_job_types
-- Keep what a worker tells of types: the latest that was told holds.
-- many: name text, api_version integer, schema text, worker text, offered_at bigint ; ORDER BY name
INSERT INTO job_type (name, api_version, schema, worker, offered_at)
VALUES (:name, :api_version, :schema, :worker, :offered_at)
ON CONFLICT (name) DO UPDATE SET api_version = excluded.api_version, schema = excluded.schema,
    worker = excluded.worker, offered_at = excluded.offered_at;

-- name: session
-- A worker's presence.
SELECT session.*, (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining,
    (SELECT expires_at FROM token WHERE token.id = session.credential) AS credential_expires_at
FROM session WHERE id = :id;

-- name: insert_session
-- A worker arrives.
INSERT INTO session (id, worker, pool, slots, labels, functions, guard_mode, version, lease,
    registered_at, expires_at, server, resources, offers, credential)
VALUES (:id, :worker, :pool, :slots, :labels, :functions, :guard_mode, :version, :lease,
    :now, :expires_at, :server, :resources, :offers, :credential);

-- name: resume_session
-- A worker has connected anew to the session it had, if that is still alive and its own.
UPDATE session SET stream = stream + 1, server = :server, expires_at = :now + lease,
    beats = beats + 1, stopping = 0, offers = :offers, credential = :credential
WHERE id = :id AND worker = :worker AND pool = :pool AND alive = 1 AND barred = 0
RETURNING id;

-- name: live_session_of
-- A presence, if it is that worker's and not over.
SELECT id FROM session WHERE id = :id AND worker = :worker AND alive = 1;

-- name: renew_session
-- The lease is prolonged, if the session is still alive and not barred.
UPDATE session SET expires_at = :now + lease, beats = beats + 1, stopping = :stopping, trouble = :trouble
WHERE id = :id AND alive = 1 AND barred = 0
RETURNING stream, (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining;

-- name: expired_sessions
-- Sessions whose lease has ended, locked.
SELECT id, worker, beats FROM session WHERE id = ANY(:ids) AND alive = 1 AND expires_at < :now;

-- name: end_sessions
-- These sessions are over.
UPDATE session SET alive = 0 WHERE id = ANY(:ids) AND alive = 1 RETURNING pool;

-- name: leased_runs
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

-- name: select_sessions
-- Workers, the newest first.
SELECT session.*, (SELECT count(*) FROM run WHERE run.session = session.id
    AND run.state IN ('CLAIMED', 'PROCESSING')) AS held,
    (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining,
    (SELECT expires_at FROM token WHERE token.id = session.credential) AS credential_expires_at
FROM session WHERE (:any = 1 OR alive = 1) AND session.worker <> '' ORDER BY registered_at DESC, id LIMIT :limit;

-- name: bounds_of_projects
-- What bounds these projects; '': nothing.
SELECT bounds FROM project WHERE name = ANY(:projects) AND deleted_at IS NULL;

-- name: served_pools
-- The pools that have workers.
SELECT DISTINCT pool FROM session WHERE alive = 1 AND stopping = 0;

-- name: heartbeats
-- How often each live session was renewed.
SELECT id, beats, lease FROM session WHERE alive = 1 AND worker <> '';

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

-- name: valid_credential
-- A worker's credential that nobody revokes meanwhile.
-- postgres: FOR SHARE
SELECT principal FROM token WHERE id = :id AND revoked_at IS NULL;

-- name: disabled_worker
-- A principal that may do nothing any more.
SELECT handle FROM principal WHERE handle = :principal AND disabled_at IS NOT NULL;

-- name: sessions_of_credentials
-- Live sessions that were opened with one of these.
SELECT id FROM session WHERE credential = ANY(:credentials) AND alive = 1 AND barred = 0;

-- name: bar_sessions
-- Nothing is given to these sessions any more. A claim passes over whoever stops, and no renewal takes
-- it back.
UPDATE session SET barred = 1, stopping = 1
WHERE id = ANY(:ids) AND credential = ANY(:credentials) AND alive = 1 AND barred = 0
RETURNING id, worker;
