-- name: heads_of_chains
-- The oldest run of each chain, whoever may take it.
SELECT chain.value ->> 'id' AS id, min(run.seq) AS seq FROM json_each(:chains) AS chain
JOIN run ON run.state = 'QUEUED' AND run.chain = chain.value ->> 'id'
GROUP BY chain.value ->> 'id';

-- name: select_rules
-- The rules of these versions of these jobs, in every combination there is.
SELECT job_id, version, rules FROM job_version WHERE job_id = ANY(:ids) AND version = ANY(:versions);

-- name: count_leased
-- How many attempts a session holds, and whether its worker is to get more.
SELECT count(*) AS held, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: count_leased_of
-- The same, if it holds no other runs than these.
SELECT count(*) AS held, (SELECT count(*) FROM drained_worker
    WHERE name = (SELECT worker FROM session WHERE id = :session)) AS draining
FROM run WHERE seq = ANY(:seqs) AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: pool_to_change
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

-- name: leased_shapes
-- The demands of what sessions hold, by how many attempts have the same.
SELECT session, shape, count(*) AS attempts FROM run
WHERE session = ANY(:sessions) AND state IN ('CLAIMED', 'PROCESSING') GROUP BY session, shape;

-- name: crew
-- The workers that a pool has or had a moment ago, by what they can do.
SELECT labels, functions, slots, resources, offers FROM session WHERE pool = :pool AND alive = 1
UNION SELECT labels, functions, slots, resources, offers FROM session
WHERE pool = :pool AND alive = 0 AND expires_at > :since AND expires_at - lease > :since;

-- name: named_crew
-- These workers, as a pool has or had them: presences that are over, too.
SELECT worker, alive, expires_at, lease, labels, functions, slots, resources, offers FROM session
WHERE worker = ANY(:workers) AND pool = :pool;
