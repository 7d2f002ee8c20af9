-- name: heads_of_chains
-- The oldest run of each line, whoever may take it.
SELECT line.id, head.seq FROM json_to_recordset(CAST(:lines AS TEXT)::json) AS line (id text)
CROSS JOIN LATERAL (
    SELECT run.seq FROM run
    WHERE run.state = 'QUEUED' AND run.chain >= line.id AND run.chain <= line.id
    ORDER BY run.chain, run.seq LIMIT 1) AS head;

-- name: count_leased
-- How many attempts a session holds, of which runs, and whether its worker is to get more.
SELECT count(*) AS held, array_agg(seq) AS seqs, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: count_leased_of
-- The same, if it holds no other runs than these.
SELECT count(*) AS held, array_agg(seq) AS seqs, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE seq = ANY(:seqs) AND coalesce(session, '') = :session
    AND coalesce(state, '') IN ('CLAIMED', 'PROCESSING');
