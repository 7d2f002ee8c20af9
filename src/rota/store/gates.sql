-- name: upstreams
-- Which of these jobs there are, and when each was last completed.
SELECT job.name, completion.at FROM job
LEFT JOIN completion ON completion.project = job.project AND completion.job = job.name
WHERE job.project = :project AND job.name = ANY(:names) AND job.deleted_at IS NULL;

-- name: job_gates
-- What the gates need to know of jobs.
SELECT job.id, job.name, job.paused, job.paused_until, job.deleted_at, job.expected_seconds, job.created_at,
    job_version.job_id, job_version.version, job_version.rules, job.project, job.created_by,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds,
    CASE WHEN job.project IN (SELECT project FROM declaration WHERE kind IN ('rate', 'quota'))
        THEN 1 ELSE 0 END AS has_limits
FROM job JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.id = ANY(:ids);

-- name: current_rules
-- The rules of jobs alone.
SELECT job.id, job_version.rules
FROM job JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.id = ANY(:ids);

-- name: active_runs
-- What is due, not final, and counts at the gates of these jobs.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart,
    coalesce(blocked_on, '') LIKE 'hold:%' AS is_held
FROM run WHERE gate_job = ANY(:ids)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    AND due_at <= :now
ORDER BY seq;

-- name: occupying_runs
-- The same without what waits at a gate, of which only those count here that somebody holds: however many wait,
-- they are not read. SQLite goes by the first list of states; the second one is that of the index.
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, 0 AS is_held
FROM run WHERE gate_job = ANY(:ids)
    AND state IN ('SCHEDULED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    AND due_at <= :now
UNION ALL
SELECT id, seq, job_id, state, trigger, attempt, backfill, caught_up, cart, 1 AS is_held
FROM run WHERE state = 'BLOCKED' AND blocked_on > 'hold:' AND blocked_on < 'hold;'
    AND coalesce(gate_job, '') = ANY(:ids) AND due_at <= :now;

-- name: gates_of_runs
-- The jobs at whose gates these runs count.
SELECT DISTINCT gate_job AS job_id FROM run WHERE id = ANY(:ids) AND gate_job IS NOT NULL;

-- name: jobs_of_runs
-- The jobs of these runs.
SELECT DISTINCT job_id FROM run WHERE id = ANY(:ids);

-- name: free_gates
-- The gates of these jobs that nobody else holds, locked.
-- postgres: ORDER BY job_id FOR NO KEY UPDATE SKIP LOCKED
SELECT job_id FROM schedule WHERE job_id = ANY(:ids);
