-- name: coming_jobs
-- Jobs that come by themselves before a time, the next ones first.
SELECT job.id, job.project, job.name, job.version, job.created_by, job.paused_until,
    job.created_at, job_version.document, job_version.rules, schedule.anchor, schedule.next_at,
    schedule.held_from, schedule.waits, schedule.answered_to,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds
FROM schedule
JOIN job ON job.id = schedule.job_id
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE schedule.next_at < :before AND job.deleted_at IS NULL
ORDER BY schedule.next_at LIMIT :limit;

-- name: waiting_jobs
-- Jobs that come again once their run has ended, once their pause has, or once another has completed.
SELECT job.id, job.project, job.name, job.version, job.created_by, job.paused_until,
    job.created_at, job_version.document, job_version.rules, schedule.anchor, schedule.next_at,
    schedule.held_from, schedule.waits, schedule.answered_to,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds
FROM (SELECT job_id FROM schedule WHERE waits = 1
    UNION SELECT id FROM job WHERE paused_until IS NOT NULL AND paused_until < :before
    UNION SELECT job_id FROM dependency) AS waiting
JOIN schedule ON schedule.job_id = waiting.job_id
JOIN job ON job.id = waiting.job_id
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.deleted_at IS NULL LIMIT :limit;

-- name: coming_jobs_of_projects
-- Jobs of some projects that come by themselves before a time, or once something else has happened, the next ones
-- first. The index of due times is of all projects: coalesce keeps it out.
SELECT job.id, job.project, job.name, job.version, job.created_by, job.paused_until,
    job.created_at, job_version.document, job_version.rules, schedule.anchor, schedule.next_at,
    schedule.held_from, schedule.waits, schedule.answered_to,
    (SELECT bounds FROM project WHERE project.name = job.project AND bounds <> '') AS bounds
FROM job
JOIN schedule ON schedule.job_id = job.id
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = ANY(:projects) AND job.deleted_at IS NULL
    AND (coalesce(schedule.next_at, 0) < :before AND schedule.next_at IS NOT NULL OR schedule.waits = 1
        OR (coalesce(job.paused_until, 0) < :before AND job.paused_until IS NOT NULL)
        OR EXISTS (SELECT 1 FROM dependency WHERE dependency.job_id = job.id))
ORDER BY coalesce(schedule.next_at, 0) LIMIT :limit;

-- name: open_runs_of_projects
-- Runs of some projects other than `default` that are not final, the oldest first.
SELECT id, project, job_id, job, state, trigger, created_at, due_at, previous_due, release_at,
    eligible_at, claimed_at, started_at, session, blocked_on, pool, priority, chain, shape, expected,
    timeout, deadline_at, keys, cart, created_by
FROM run INDEXED BY run_open
WHERE project = ANY(:projects) AND project <> 'default' AND ended_at IS NULL
ORDER BY seq LIMIT :limit;

-- name: all_open_runs
-- Runs that are not final, the oldest first.
SELECT id, project, job_id, job, state, trigger, created_at, due_at, previous_due, release_at,
    eligible_at, claimed_at, started_at, session, blocked_on, pool, priority, chain, shape, expected,
    timeout, deadline_at, keys, cart, created_by
FROM active_run ORDER BY seq LIMIT :limit;

-- name: open_carts
-- Carts that go on, with how many items of each wave have no run yet, the oldest first.
SELECT cart.id, cart.rules AS cart_rules, cart.state, cart.created_by, cart.starts_at, cart.look_at,
    cart.open, pending.wave, pending.items, pending.job_id, job_version.rules
FROM (SELECT cart.id, cart_item.wave, count(*) AS items, min(cart_item.job_id) AS job_id,
        max(cart_item.job_version) AS job_version
    FROM cart JOIN cart_item ON cart_item.cart = cart.id AND cart_item.state = 'PENDING'
    WHERE cart.ended_at IS NULL AND cart.state IN ('PLANNED', 'RUNNING', 'WAITING')
    GROUP BY cart.id, cart_item.wave) AS pending
JOIN cart ON cart.id = pending.id
JOIN job_version ON job_version.job_id = pending.job_id AND job_version.version = pending.job_version
ORDER BY cart.created_at, cart.id, pending.wave LIMIT :limit;

-- name: open_carts_of_projects
-- The same of some projects.
SELECT cart.id, cart.rules AS cart_rules, cart.state, cart.created_by, cart.starts_at, cart.look_at,
    cart.open, pending.wave, pending.items, pending.job_id, job_version.rules
FROM (SELECT cart.id, cart_item.wave, count(*) AS items, min(cart_item.job_id) AS job_id,
        max(cart_item.job_version) AS job_version
    FROM cart JOIN cart_item ON cart_item.cart = cart.id AND cart_item.state = 'PENDING'
    WHERE cart.project = ANY(:projects) AND cart.ended_at IS NULL
        AND cart.state IN ('PLANNED', 'RUNNING', 'WAITING')
    GROUP BY cart.id, cart_item.wave) AS pending
JOIN cart ON cart.id = pending.id
JOIN job_version ON job_version.job_id = pending.job_id AND job_version.version = pending.job_version
ORDER BY cart.created_at, cart.id, pending.wave LIMIT :limit;

-- name: latest_durations
-- How long the newest runs of jobs took that completed, in microseconds, as a list in a text.
SELECT id, (SELECT group_concat(ended_at - started_at) FROM (SELECT state, started_at, ended_at
    FROM run WHERE job_id = job.id AND trigger <> 'probe' ORDER BY seq DESC LIMIT :looked_at) AS newest
    WHERE state = 'COMPLETED' AND started_at IS NOT NULL) AS durations
FROM job WHERE id = ANY(:ids);

-- name: tokens_left
-- How full buckets were; those that nobody took of for long are likely to be full again.
SELECT key, level, at FROM shared_key WHERE level IS NOT NULL ORDER BY at DESC LIMIT :limit;

-- name: latest_completions
-- When jobs that others follow last completed.
SELECT project, job, at FROM completion ORDER BY at DESC LIMIT :limit;

-- name: latest_completions_in_projects
-- The same of jobs of some projects.
SELECT project, job, at FROM completion WHERE project = ANY(:projects) ORDER BY at DESC LIMIT :limit;

-- name: insert_prediction
-- When a run is thought to start.
-- many: run text, now bigint, start_at bigint
INSERT INTO prediction (run_id, made_at, start_at) VALUES (:run, :now, :start_at)
ON CONFLICT (run_id) DO NOTHING;

-- name: forget_predictions
-- Those that are too old to be compared.
DELETE FROM prediction WHERE made_at < :before;

-- name: predicted_starts
-- Predictions of runs that have started, the newest first.
SELECT prediction.made_at, prediction.start_at, run.first_started_at
FROM prediction JOIN run ON run.id = prediction.run_id
WHERE prediction.made_at >= :since AND run.first_started_at IS NOT NULL
ORDER BY prediction.made_at DESC LIMIT :limit;

-- name: predicted_starts_in_project
-- The same among the newest runs of a project other than `default`.
SELECT prediction.made_at, prediction.start_at, mine.first_started_at
FROM (SELECT id, first_started_at FROM run WHERE project = :project AND project <> 'default'
    ORDER BY seq DESC LIMIT :limit) AS mine
JOIN prediction ON prediction.run_id = mine.id
WHERE prediction.made_at >= :since AND mine.first_started_at IS NOT NULL;

-- name: pools_named
-- Pools that jobs of some projects name.
SELECT DISTINCT job_version.rules ->> 'pool' AS pool FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = ANY(:projects) AND job.deleted_at IS NULL;

-- name: users_of_pools
-- Projects that these pools were given to.
SELECT pool, project FROM pool_project WHERE pool = ANY(:pools);
