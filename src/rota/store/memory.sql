-- name: heads_of_chains
-- The oldest run of each line, whoever may take it.
SELECT line.value ->> 'id' AS id, min(run.seq) AS seq FROM json_each(:lines) AS line
JOIN run ON run.state = 'QUEUED' AND run.chain = line.value ->> 'id'
GROUP BY line.value ->> 'id';

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
