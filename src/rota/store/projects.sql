-- name: insert_project
-- A new project; a name is never given twice.
INSERT INTO project (name, title, defaults, policy, bounds, version, created_by, created_at, updated_by, updated_at)
VALUES (:name, :title, :defaults, :policy, :bounds, 1, :actor, :now, :actor, :now)
ON CONFLICT (name) DO NOTHING RETURNING name;

-- name: deleted_project
-- Whether a project of this name was deleted.
SELECT name FROM project WHERE name = :name AND deleted_at IS NOT NULL;

-- name: update_project
-- Replace what is said about a project.
UPDATE project SET title = :title, defaults = :defaults, policy = :policy, version = version + 1,
    updated_by = :actor, updated_at = :now
WHERE name = :name AND version = :expected AND deleted_at IS NULL;

-- name: set_bounds
-- What gates read of a project.
-- many: bounds text, name text
UPDATE project SET bounds = :bounds WHERE name = :name;

-- name: end_project
-- Take a project out of service. The row stays: its name is not given again.
UPDATE project SET deleted_at = :now, updated_by = :actor, updated_at = :now, version = version + 1
WHERE name = :name AND deleted_at IS NULL;

-- name: select_projects
-- Projects by name.
SELECT * FROM project WHERE name > :after AND deleted_at IS NULL ORDER BY name LIMIT :limit;

-- name: select_projects_by_name
-- These projects, as far as they are there.
SELECT * FROM project WHERE name = ANY(:names) AND deleted_at IS NULL ORDER BY name;

-- name: life_of_project
-- Something of each kind that keeps a project from being deleted.
SELECT (SELECT name FROM job WHERE project = :name AND deleted_at IS NULL LIMIT 1) AS job,
    (SELECT id FROM active_run WHERE coalesce(project, '') = :name LIMIT 1) AS run,
    (SELECT id FROM cart WHERE project = :name AND ended_at IS NULL LIMIT 1) AS cart,
    (SELECT name FROM cart_template WHERE project = :name LIMIT 1) AS template,
    (SELECT name FROM calendar WHERE project = :name LIMIT 1) AS calendar,
    (SELECT name FROM declaration WHERE project = :name AND kind <> 'quota' LIMIT 1) AS declaration;

-- name: existing_projects
-- Those of these names that are projects.
SELECT name FROM project WHERE name = ANY(:names) AND deleted_at IS NULL;

-- name: forget_roles_in
-- Nobody has a role in this scope any more.
DELETE FROM binding WHERE scope = :scope;

-- name: revoke_tokens_of_project
-- What calls in this project only.
UPDATE token SET revoked_at = :now WHERE project = :name AND revoked_at IS NULL;

-- name: forget_quota
-- What a project might have.
DELETE FROM declaration WHERE project = :name AND kind = 'quota';

-- name: rules_of_project
-- What the jobs of a project ask for.
SELECT job.id, job.project, job_version.rules FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = :project AND job.deleted_at IS NULL;

-- name: rules_of_pool
-- The same of the jobs that name a pool.
SELECT job.id, job.project, job_version.rules FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.deleted_at IS NULL AND job_version.rules ->> 'pool' = :pool;

-- name: jobs_with_waiting_runs
-- Those of these jobs that have a run in the queue or at a gate.
SELECT DISTINCT job_id FROM active_run
WHERE coalesce(job_id, '') = ANY(:ids) AND state IN ('QUEUED', 'BLOCKED');

-- name: given_pools
-- Which pools were given to which projects.
SELECT pool, project FROM pool_project ORDER BY pool, project;

-- name: take_pool
-- A pool is for all.
DELETE FROM pool_project WHERE pool = :pool;

-- name: give_pool
-- A pool is for a project.
-- many: pool text, project text
INSERT INTO pool_project (pool, project) VALUES (:pool, :project);

-- name: private_pools
-- Pools that keep plain processes out while several projects may use them.
SELECT pool FROM private_pool ORDER BY pool;

-- name: close_pool
-- Keep processes out of a pool while it is shared.
INSERT INTO private_pool (pool) VALUES (:pool) ON CONFLICT (pool) DO NOTHING;

-- name: open_pool
-- A pool goes by the rule of the store.
DELETE FROM private_pool WHERE pool = :pool;

-- name: count_projects
-- How many there are.
SELECT count(*) AS projects FROM project WHERE deleted_at IS NULL;

-- name: wall_defaults
-- The walls of jobs that ask for none.
SELECT value FROM meta WHERE key = 'walls';

-- name: insert_wall_defaults
-- The same, of a store that has none yet.
INSERT INTO meta (key, value) VALUES ('walls', :value) ON CONFLICT (key) DO NOTHING RETURNING key;

-- name: set_most
-- The most that a run may ask of a pool.
INSERT INTO pool (name, served, most) VALUES (:pool, 0, :most)
ON CONFLICT (name) DO UPDATE SET most = excluded.most;

-- name: most_of_pools
-- The same of some pools, as far as somebody has set it.
SELECT name, most FROM pool WHERE name = ANY(:names) AND most IS NOT NULL;

-- name: known_pools
-- Pools that have or had workers, or were given away, with how many workers are connected.
SELECT known.name, (SELECT most FROM pool WHERE pool.name = known.name) AS most,
    (SELECT count(*) FROM session WHERE session.pool = known.name AND session.alive = 1) AS workers
FROM (SELECT name FROM pool UNION SELECT pool FROM pool_project UNION SELECT pool FROM private_pool
    UNION SELECT pool FROM session WHERE alive = 1) AS known
WHERE known.name <> '_external'
ORDER BY known.name;
