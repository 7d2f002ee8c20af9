-- A chain's runs are found between two ends, not by its name, and sorted by both columns of their index:
-- so it leads, and is read no further than needed, however many or few runs seem to wait.

-- name: chain_heads
-- The oldest runs of a chain that fit and that nobody else is about to change.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at FROM run
WHERE state = 'QUEUED' AND chain >= :chain AND chain <= :chain AND (chain, seq) >= (:chain, :first)
    AND shape = ANY(:shapes)
ORDER BY chain, seq LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED;

-- name: oldest_runs
-- The oldest runs of a pool that fit, found among the oldest of each of its chains.
SELECT seq, id, chain, shape, keys, expected, timeout, queued_at
FROM run WHERE state = 'QUEUED' AND seq IN (
    SELECT head.seq
    FROM json_to_recordset(CAST(:chains AS TEXT)::json) AS chain (id text, first bigint)
    CROSS JOIN LATERAL (
        SELECT run.seq FROM run
        WHERE run.state = 'QUEUED' AND run.chain >= chain.id AND run.chain <= chain.id
            AND (run.chain, run.seq) >= (chain.id, chain.first) AND run.shape = ANY(:shapes)
        ORDER BY run.chain, run.seq LIMIT :limit) AS head
    ORDER BY head.seq LIMIT :limit)
ORDER BY seq FOR NO KEY UPDATE SKIP LOCKED;

-- name: keep_shape
-- A demand on workers that nobody forgets meanwhile.
INSERT INTO shape (id, worker) SELECT DISTINCT id, worker FROM unnest(:id::text[], :worker::text[]) AS new (id, worker)
ORDER BY id ON CONFLICT (id) DO UPDATE SET id = excluded.id;

-- name: lock_shapes
-- Demands that are to be forgotten: no run begins to make them meanwhile.
SELECT FROM shape WHERE id = ANY(:ids) ORDER BY id FOR UPDATE;
