-- name: heads_of_chains
-- The oldest run of each chain, whoever may take it.
SELECT chain.id, head.seq FROM json_to_recordset(CAST(:chains AS TEXT)::json) AS chain (id text)
CROSS JOIN LATERAL (
    SELECT run.seq FROM run
    WHERE run.state = 'QUEUED' AND run.chain >= chain.id AND run.chain <= chain.id
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
FROM run WHERE seq = ANY(:seqs::text::bigint[]) AND coalesce(session, '') = :session
    AND coalesce(state, '') IN ('CLAIMED', 'PROCESSING');
