-- name: chains
-- Where these lines stand; they do not rest before the transaction has ended.
SELECT id, tag, active, weight, group_weight FROM chain WHERE id = ANY(:ids) ORDER BY id FOR KEY SHARE;

-- name: charge_chain
-- Move a line's tag by what its runs cost.
UPDATE chain SET tag = tag + charge.cost
FROM unnest(:cost::float8[], :id::text[]) AS charge (cost, id)
WHERE chain.id = charge.id;

-- name: empty_chains
-- Active lines among these that have no run left, locked. One that somebody enters or charges right
-- now is left to a later claim.
SELECT id FROM chain WHERE id = ANY(:ids) AND active = 1
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id)
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: lock_chains
-- Lines that are to change.
SELECT FROM chain WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;
