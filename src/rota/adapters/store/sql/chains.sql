-- name: active_chains
-- The lines of a pool that have runs.
SELECT id, priority, tag, weight FROM chain WHERE pool = :pool AND active = 1;

-- name: chains
-- Where these lines stand, locked.
SELECT id, tag, active FROM chain WHERE id = ANY(:ids);

-- name: pool_tags
-- How far the lines of a pool have got.
SELECT
    (SELECT min(tag) FROM chain WHERE pool = :pool AND priority = :priority AND active = 1)
        AS least_of_priority,
    (SELECT min(tag) FROM chain WHERE pool = :pool AND active = 1) AS least,
    (SELECT max(tag) FROM chain WHERE pool = :pool) AS greatest;

-- name: activate_chain
-- A line that has runs again.
INSERT INTO chain (id, pool, priority, share, tag, active)
VALUES (:id, :pool, :priority, :share, :tag, 1)
ON CONFLICT (id) DO UPDATE SET tag = excluded.tag, active = 1 WHERE chain.active = 0;

-- name: charge_chain
-- Move a line's tag by what its runs cost.
UPDATE chain SET tag = tag + :cost / weight WHERE id = :id;

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

-- name: pool_state
-- How much a pool has served, and how many slots its live workers have.
SELECT (SELECT served FROM pool WHERE name = :pool) AS served,
    (SELECT sum(slots) FROM session WHERE pool = :pool AND alive = 1) AS slots;

-- name: count_served
-- How much a pool has served.
INSERT INTO pool (name, served) VALUES (:pool, :served)
ON CONFLICT (name) DO UPDATE SET served = pool.served + excluded.served;

-- name: line_heads
-- The oldest run of each line, whoever may take it.
SELECT line.value ->> 'id' AS id, min(run.seq) AS seq FROM json_each(:lines) AS line
JOIN run ON run.state = 'QUEUED' AND run.chain = line.value ->> 'id'
GROUP BY line.value ->> 'id';

-- name: chain_heads
-- The oldest runs of a line that fit.
SELECT seq FROM run
WHERE state = 'QUEUED' AND chain = :chain AND seq >= :first AND shape = ANY(:shapes)
ORDER BY seq LIMIT :limit;

-- name: oldest_runs
-- The oldest runs of a pool that fit, found among the oldest of each of its lines.
SELECT run.seq FROM json_each(:lines) AS line JOIN run ON run.seq IN (
    SELECT head.seq FROM run AS head
    WHERE head.state = 'QUEUED' AND head.chain = line.value ->> 'id'
        AND head.seq >= line.value ->> 'first' AND head.shape = ANY(:shapes)
    ORDER BY head.seq LIMIT :limit)
ORDER BY run.seq LIMIT :limit;
