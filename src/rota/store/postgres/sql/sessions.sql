-- name: claiming_session
-- A presence that does not end meanwhile. Its free slots are given away one claim after another: claims
-- wait for a lock beside the row, which a renewal has to change without waiting for any of them.
SELECT session.* FROM session, pg_advisory_xact_lock(7682002, hashtext(:id))
WHERE id = :id FOR KEY SHARE OF session;

-- name: free_session
-- The same, if nobody else claims for it or is about to end it: firing waits for no worker.
SELECT session.* FROM session WHERE id = :id AND pg_try_advisory_xact_lock(7682002, hashtext(:id))
FOR KEY SHARE SKIP LOCKED;

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
