-- name: reservation
-- For which run a worker of a pool is kept free. It counts while the run waits and the worker is there.
SELECT seq, session, shape, behind, expires_at,
    CASE WHEN expires_at > :now
        AND EXISTS (SELECT 1 FROM run WHERE run.seq = reservation.seq AND run.state = 'QUEUED')
        AND EXISTS (SELECT 1 FROM session WHERE session.id = reservation.session
            AND session.alive = 1 AND session.stopping = 0)
    THEN 1 ELSE 0 END AS counts
FROM reservation WHERE pool = :pool;

-- name: reserve
-- Keep a worker free for a run, if nobody was quicker than to replace what was seen.
INSERT INTO reservation (pool, seq, session, shape, behind, expires_at)
VALUES (:pool, :seq, :session, :shape, :behind, :expires_at)
ON CONFLICT (pool) DO UPDATE SET seq = excluded.seq, session = excluded.session,
    shape = excluded.shape, behind = excluded.behind, expires_at = excluded.expires_at
WHERE reservation.seq = :seen_seq AND reservation.session = :seen_session;

-- name: drop_reservation
-- The run has got its worker.
DELETE FROM reservation WHERE pool = :pool AND seq = :seq;

-- name: reserved_run
-- A run that a worker was kept free for, if it still waits.
SELECT seq, chain, shape, keys, expected, timeout FROM run WHERE seq = :seq AND state = 'QUEUED';
