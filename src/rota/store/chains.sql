-- name: active_chains
-- The chains of a pool that have runs.
SELECT id, priority, share, tag, weight, group_weight FROM chain WHERE pool = :pool AND active = 1;

-- name: chains
-- The tags and weights of these chains, locked.
-- postgres: ORDER BY id FOR KEY SHARE
SELECT id, tag, active, weight, group_weight FROM chain WHERE id = ANY(:ids);

-- name: pool_tags
-- The virtual finish tags of a pool: least of a priority, least and greatest of all.
SELECT
    (SELECT min(tag) FROM chain WHERE pool = :pool AND priority = :priority AND active = 1)
        AS least_of_priority,
    (SELECT min(tag) FROM chain WHERE pool = :pool AND active = 1) AS least,
    (SELECT max(tag) FROM chain WHERE pool = :pool) AS greatest;

-- name: activate_chain
-- A chain that has runs again, with the weights that its share and group have by now.
INSERT INTO chain (id, pool, priority, share, tag, active, weight, group_weight)
VALUES (:id, :pool, :priority, :share, :tag, 1,
    coalesce((SELECT weight FROM share_weight WHERE share_weight.share = :share), 1),
    coalesce((SELECT weight FROM share_weight WHERE share_weight.share = :grouped), 1))
ON CONFLICT (id) DO UPDATE SET tag = excluded.tag, active = 1, weight = excluded.weight,
    group_weight = excluded.group_weight
WHERE chain.active = 0;

-- name: charge_chain
-- Move a chain's tag by what its runs cost.
-- many: cost float8, id text
UPDATE chain SET tag = tag + :cost WHERE id = :id;

-- name: empty_chains
-- Active chains among these that have no run left.
-- postgres: ORDER BY id FOR UPDATE SKIP LOCKED
SELECT id FROM chain WHERE id = ANY(:ids) AND active = 1
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id);

-- name: rest_chains
-- Chains that have no run left.
UPDATE chain SET active = 0 WHERE id = ANY(:ids)
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id);
