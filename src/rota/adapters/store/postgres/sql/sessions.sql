-- name: session
-- A worker's presence, locked: its free slots are given away one claim after another.
SELECT session.*,
    (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining
FROM session WHERE id = :id FOR NO KEY UPDATE OF session;
