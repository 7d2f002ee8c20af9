-- name: chains
-- Where these lines stand; they do not rest before the transaction has ended.
SELECT id, tag, active FROM chain WHERE id = ANY(:ids) ORDER BY id FOR KEY SHARE;

-- name: charge_chain
-- Move a line's tag by what its runs cost.
UPDATE chain SET tag = tag + charge.cost / weight
FROM unnest(:cost::float8[], :id::text[]) AS charge (cost, id)
WHERE chain.id = charge.id;

-- name: empty_chains
-- Active lines among these that have no run left, locked. One that somebody enters or charges right
-- now is left to a later claim.
SELECT id FROM chain WHERE id = ANY(:ids) AND active = 1
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id)
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) SELECT DISTINCT id FROM unnest(:id::text[]) AS new (id) ORDER BY id
ON CONFLICT DO NOTHING;

-- name: chain_heads
-- The oldest runs of a line that fit and that nobody else is about to change.
SELECT seq FROM run WHERE state = 'QUEUED' AND chain = :chain AND shape = ANY(:shapes)
ORDER BY seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: oldest_runs
-- The oldest runs of a pool that fit, found among the oldest of each of its lines.
SELECT seq FROM run WHERE state = 'QUEUED' AND seq IN (
    SELECT head.seq FROM chain CROSS JOIN LATERAL (
        SELECT run.seq FROM run
        WHERE run.state = 'QUEUED' AND run.chain = chain.id AND run.shape = ANY(:shapes)
        ORDER BY run.seq LIMIT :limit) AS head
    WHERE chain.pool = :pool AND chain.active = 1
    ORDER BY head.seq LIMIT :limit)
ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED;
