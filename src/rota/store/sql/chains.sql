-- name: waiting_pools
-- The pools that have lines with runs in them.
SELECT DISTINCT pool FROM chain WHERE active = 1;

-- name: active_chains
-- The lines of a pool that have runs.
SELECT id, priority, share, tag, weight, group_weight FROM chain WHERE pool = :pool AND active = 1;

-- name: chains
-- Where these lines stand, locked.
SELECT id, tag, active, weight, group_weight FROM chain WHERE id = ANY(:ids);

-- name: pool_tags
-- How far the lines of a pool have got.
SELECT
    (SELECT min(tag) FROM chain WHERE pool = :pool AND priority = :priority AND active = 1)
        AS least_of_priority,
    (SELECT min(tag) FROM chain WHERE pool = :pool AND active = 1) AS least,
    (SELECT max(tag) FROM chain WHERE pool = :pool) AS greatest;

-- name: activate_chain
-- A line that has runs again, with the weights that its share and group have by now.
INSERT INTO chain (id, pool, priority, share, tag, active, weight, group_weight)
VALUES (:id, :pool, :priority, :share, :tag, 1,
    coalesce((SELECT weight FROM share_weight WHERE share_weight.share = :share), 1),
    coalesce((SELECT weight FROM share_weight WHERE share_weight.share = :grouped), 1))
ON CONFLICT (id) DO UPDATE SET tag = excluded.tag, active = 1, weight = excluded.weight,
    group_weight = excluded.group_weight
WHERE chain.active = 0;

-- name: charge_chain
-- Move a line's tag by what its runs cost.
UPDATE chain SET tag = tag + :cost WHERE id = :id;

-- name: empty_chains
-- Active lines among these that have no run left.
SELECT id FROM chain WHERE id = ANY(:ids) AND active = 1
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id);

-- name: rest_chains
-- Lines that have no run left.
UPDATE chain SET active = 0 WHERE id = ANY(:ids)
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.state = 'QUEUED' AND run.chain = chain.id);

-- name: shapes
-- All distinct demands on workers.
SELECT id FROM shape;

-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) VALUES (:id) ON CONFLICT DO NOTHING;

-- name: keep_shape
-- A demand on workers that nobody forgets meanwhile.
INSERT INTO shape (id) VALUES (:id) ON CONFLICT (id) DO UPDATE SET id = excluded.id;

-- name: forget_shapes
-- Those of these demands that no run makes any more. Only runs that lost workers do.
DELETE FROM shape WHERE id = ANY(:ids) AND id NOT IN (
    SELECT shape FROM run WHERE state = 'SCHEDULED' AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state = 'BLOCKED' AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state = 'QUEUED' AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state IN ('CLAIMED', 'PROCESSING') AND losses > 0
    UNION ALL SELECT shape FROM run WHERE state = 'UNKNOWN' AND losses > 0);

-- name: pool_state
-- How much a pool has served, and what all its live workers offer together.
SELECT (SELECT served FROM pool WHERE name = :pool) AS served,
    (SELECT totals FROM pool WHERE name = :pool) AS totals;

-- name: count_served
-- How much a pool has served.
INSERT INTO pool (name, served) VALUES (:pool, :served)
ON CONFLICT (name) DO UPDATE SET served = pool.served + excluded.served;

-- name: hold_pool
-- A pool, locked: one transaction at a time adds up what its workers offer.
INSERT INTO pool (name, served) VALUES (:pool, 0)
ON CONFLICT (name) DO UPDATE SET served = pool.served;

-- name: offers
-- What the live workers of a pool offer, by how many offer the same.
SELECT slots, resources, count(*) AS workers FROM session WHERE pool = :pool AND alive = 1
GROUP BY slots, resources;

-- name: set_totals
-- What all workers of a pool offer together.
UPDATE pool SET totals = :totals WHERE name = :pool;

-- name: lines_of_pool
-- All lines of a pool.
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
-- The lines of a share, and of all that is a part of it.
SELECT id FROM chain WHERE share = :share OR substr(share, 1, length(:share) + 1) = :share || '/'
ORDER BY id;

-- name: weigh_chains
-- Lines of a share, and of all that is a part of it, count by its new weight.
UPDATE chain SET weight = CASE WHEN share = :share THEN :weight ELSE weight END,
    group_weight = CASE WHEN :is_group = 1 THEN :weight ELSE group_weight END
WHERE id = ANY(:ids);

-- name: line_heads
-- The oldest run of each line, whoever may take it.
SELECT line.value ->> 'id' AS id, min(run.seq) AS seq FROM json_each(:lines) AS line
JOIN run ON run.state = 'QUEUED' AND run.chain = line.value ->> 'id'
GROUP BY line.value ->> 'id';

-- name: chain_heads
-- The oldest runs of a line that fit.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE state = 'QUEUED' AND chain = :chain AND seq >= :first AND shape = ANY(:shapes)
ORDER BY seq LIMIT :limit;

-- name: oldest_runs
-- The oldest runs of a pool that fit, found among the oldest of each of its lines.
SELECT run.seq, run.id, run.chain, run.shape, run.keys, run.expected, run.timeout, run.queued_at
FROM json_each(:lines) AS line JOIN run ON run.seq IN (
    SELECT head.seq FROM run AS head
    WHERE head.state = 'QUEUED' AND head.chain = line.value ->> 'id'
        AND head.seq >= line.value ->> 'first' AND head.shape = ANY(:shapes)
    ORDER BY head.seq LIMIT :limit)
ORDER BY run.seq LIMIT :limit;
