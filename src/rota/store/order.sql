-- name: chains_of_pool
-- All chains of a pool.
SELECT id, priority, share, tag, weight, group_weight, active FROM chain WHERE pool = :pool
ORDER BY priority DESC, share;

-- name: share_weights
-- The weights that somebody has set.
SELECT share, weight, updated_by, updated_at FROM share_weight ORDER BY share;

-- name: set_share_weight
-- How much of a pool a share gets, against others.
INSERT INTO share_weight (share, weight, updated_by, updated_at)
VALUES (:share, :weight, :actor, :now)
ON CONFLICT (share) DO UPDATE SET weight = excluded.weight, updated_by = excluded.updated_by,
    updated_at = excluded.updated_at;

-- name: add_share
-- A share of the weight that all have, unless it has one.
INSERT INTO share_weight (share, weight, updated_by, updated_at) VALUES (:share, 1, :actor, :now)
ON CONFLICT (share) DO NOTHING RETURNING share;

-- name: chains_of_share
-- The chains of a share, and of all that is a part of it.
SELECT id FROM chain WHERE share = :share OR substr(share, 1, length(:share) + 1) = :share || '/'
ORDER BY id;

-- name: weigh_chains
-- Chains of a share, and of all that is a part of it, count by its new weight.
UPDATE chain SET weight = CASE WHEN share = :share THEN :weight ELSE weight END,
    group_weight = CASE WHEN :is_group = 1 THEN :weight ELSE group_weight END
WHERE id = ANY(:ids);

-- name: waiting_run
-- A run that waits, as the order of service and the shared keys see it.
SELECT seq, state, pool, priority, created_at, chain, shape, expected, keys, blocked_on FROM run
WHERE id = :run AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: queued_in_chains
-- What waits in these chains, and how much of it came before a run.
SELECT chain, shape, count(*) AS runs, count(CASE WHEN seq < :seq THEN 1 END) AS older,
    sum(expected) AS expected
FROM run WHERE state = 'QUEUED' AND chain = ANY(:chains) GROUP BY chain, shape;

-- name: going_in_pool
-- The live attempts of a pool by chain.
SELECT chain, shape, count(*) AS runs FROM run
WHERE state IN ('CLAIMED', 'PROCESSING') AND pool = :pool GROUP BY chain, shape;

-- name: waiting_before
-- Runs that wait for the same as another one and are older.
SELECT count(*) AS runs FROM run WHERE state = 'BLOCKED' AND blocked_on = :key AND seq < :seq;

-- name: key_waiting_before
-- Runs that wait for the same shared key as another one and go before it.
SELECT count(*) AS runs FROM run WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on = :key
    AND (created_at - priority * :boost < :place
        OR (created_at - priority * :boost = :place AND seq < :seq));

-- name: kept_free
-- The worker of a pool that is kept free, and for which run.
SELECT run.id, run.project, session.worker, reservation.expires_at FROM reservation
JOIN run ON run.seq = reservation.seq JOIN session ON session.id = reservation.session
WHERE reservation.pool = :pool AND reservation.expires_at > :now AND run.state = 'QUEUED'
    AND session.alive = 1 AND session.stopping = 0;
