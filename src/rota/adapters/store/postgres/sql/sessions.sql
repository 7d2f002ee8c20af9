-- name: session
-- A worker's presence, locked: its free slots are given away one claim after another.
SELECT session.*,
    (SELECT count(*) FROM drained_worker WHERE drained_worker.name = session.worker) AS draining
FROM session WHERE id = :id FOR NO KEY UPDATE OF session;

-- name: free_session
-- The same, if nobody else is about to change it: firing waits for no worker.
SELECT session.* FROM session WHERE id = :id FOR NO KEY UPDATE SKIP LOCKED;

-- name: count_held
-- How many attempts a session holds, of which runs, and whether its worker is to get more.
SELECT count(*) AS held, array_agg(seq) AS seqs, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: count_held_of
-- The same, if it holds no other runs than these.
SELECT count(*) AS held, array_agg(seq) AS seqs, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE seq = ANY(:seqs) AND coalesce(session, '') = :session
    AND coalesce(state, '') IN ('CLAIMED', 'PROCESSING');
