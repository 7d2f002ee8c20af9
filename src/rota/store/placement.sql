-- name: chain_heads
-- The oldest runs of a chain that fit.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE state = 'QUEUED' AND chain = :chain AND seq >= :first AND shape = ANY(:shapes)
ORDER BY seq LIMIT :limit;

-- name: oldest_runs
-- The oldest runs of a pool that fit, found among the oldest of each of its chains.
SELECT run.seq, run.id, run.chain, run.shape, run.keys, run.expected, run.timeout, run.queued_at
FROM json_each(:chains) AS chain JOIN run ON run.seq IN (
    SELECT head.seq FROM run AS head
    WHERE head.state = 'QUEUED' AND head.chain = chain.value ->> 'id'
        AND head.seq >= chain.value ->> 'first' AND head.shape = ANY(:shapes)
    ORDER BY head.seq LIMIT :limit)
ORDER BY run.seq LIMIT :limit;

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
-- postgres: FOR NO KEY UPDATE SKIP LOCKED
SELECT seq, chain, shape, keys, expected, timeout FROM run WHERE seq = :seq AND state = 'QUEUED';

-- name: named_runs
-- Which of these runs a worker of a pool may take now.
-- postgres: FOR NO KEY UPDATE SKIP LOCKED
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE id = ANY(:ids) AND state = 'QUEUED' AND pool = :pool AND shape = ANY(:shapes)
ORDER BY id LIMIT :limit;

-- name: leased_demands
-- What the attempts of a session take of its worker, and until when.
SELECT seq, shape, coalesce(started_at, claimed_at) AS began_at, timeout, expected FROM run
WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: neighbours
-- Other workers of a pool that may get work, each as often as it holds different demands.
SELECT near.id, near.worker, near.slots, near.resources, near.labels, near.functions, near.offers,
    run.shape, count(run.seq) AS attempts
FROM (SELECT id, worker, slots, resources, labels, functions, offers FROM session
    WHERE pool = :pool AND alive = 1 AND stopping = 0 AND expires_at > :now AND id <> :session
        AND NOT EXISTS (SELECT 1 FROM drained_worker WHERE drained_worker.name = session.worker)
    LIMIT :limit) AS near
LEFT JOIN run ON run.session = near.id AND run.state IN ('CLAIMED', 'PROCESSING')
GROUP BY near.id, near.worker, near.slots, near.resources, near.labels, near.functions, near.offers,
    run.shape;

-- name: keep_shape
-- A demand on workers that nobody forgets meanwhile.
INSERT INTO shape (id, worker) VALUES (:id, :worker) ON CONFLICT (id) DO UPDATE SET id = excluded.id;

-- name: set_shape
-- What these runs ask of a worker has changed.
UPDATE run SET shape = :shape WHERE seq = ANY(:seqs);

-- name: all_shapes
-- All distinct demands on workers.
SELECT id FROM shape;

-- name: forget_shapes
-- Those of these demands that no run makes any more. Only runs that lost workers do.
DELETE FROM shape WHERE id = ANY(:ids) AND id NOT IN (
    SELECT shape FROM run WHERE state = 'SCHEDULED' AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state = 'BLOCKED' AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state = 'QUEUED' AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state IN ('CLAIMED', 'PROCESSING') AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state = 'UNKNOWN' AND losses > 0);
