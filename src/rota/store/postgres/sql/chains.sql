-- A line's runs are found between two ends, not by its name, and sorted by both columns of their index:
-- so it leads, and is read no further than needed, however many or few runs seem to wait.

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

-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) SELECT DISTINCT id FROM unnest(:id::text[]) AS new (id) ORDER BY id
ON CONFLICT DO NOTHING;

-- name: keep_shape
-- A demand on workers that nobody forgets meanwhile.
INSERT INTO shape (id) SELECT DISTINCT id FROM unnest(:id::text[]) AS new (id) ORDER BY id
ON CONFLICT (id) DO UPDATE SET id = excluded.id;

-- name: line_heads
-- The oldest run of each line, whoever may take it.
SELECT line.id, head.seq FROM json_to_recordset(CAST(:lines AS TEXT)::json) AS line (id text)
CROSS JOIN LATERAL (
    SELECT run.seq FROM run
    WHERE run.state = 'QUEUED' AND run.chain >= line.id AND run.chain <= line.id
    ORDER BY run.chain, run.seq LIMIT 1) AS head;

-- name: chain_heads
-- The oldest runs of a line that fit and that nobody else is about to change.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE state = 'QUEUED' AND chain >= :chain AND chain <= :chain AND (chain, seq) >= (:chain, :first)
    AND shape = ANY(:shapes)
ORDER BY chain, seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: oldest_runs
-- The oldest runs of a pool that fit, found among the oldest of each of its lines.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at
FROM run WHERE state = 'QUEUED' AND seq IN (
    SELECT head.seq
    FROM json_to_recordset(CAST(:lines AS TEXT)::json) AS line (id text, first bigint)
    CROSS JOIN LATERAL (
        SELECT run.seq FROM run
        WHERE run.state = 'QUEUED' AND run.chain >= line.id AND run.chain <= line.id
            AND (run.chain, run.seq) >= (line.id, line.first) AND run.shape = ANY(:shapes)
        ORDER BY run.chain, run.seq LIMIT :limit) AS head
    ORDER BY head.seq LIMIT :limit)
ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED;
