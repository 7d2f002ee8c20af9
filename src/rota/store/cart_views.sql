-- name: select_carts_by_id
-- These carts.
SELECT * FROM cart WHERE id = ANY(:ids) AND state <> 'LOADING'
    AND (:any_project = 1 OR coalesce(project, '') = ANY(:projects));

-- name: select_carts
-- Carts, newest first.
SELECT * FROM cart
WHERE project = :project AND state <> 'LOADING' AND (created_at, id) < (:before_at, :before_id)
    AND (CAST(:name AS TEXT) IS NULL OR name = :name)
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (:any_state = 1 OR state = ANY(:states))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: select_carts_of_projects
-- Carts of some projects, or of all, newest first.
SELECT * FROM cart
WHERE (:any_project = 1 OR project = ANY(:projects)) AND state <> 'LOADING' AND (created_at, id) < (:before_at, :before_id)
    AND (CAST(:name AS TEXT) IS NULL OR name = :name)
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (:any_state = 1 OR state = ANY(:states))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: select_carts_of_user
-- Carts that one user submitted, in some projects or all, newest first.
SELECT * FROM cart
WHERE created_by = :created_by AND state <> 'LOADING' AND (created_at, id) < (:before_at, :before_id)
    AND (:any_project = 1 OR coalesce(project, '') = ANY(:projects))
    AND (CAST(:name AS TEXT) IS NULL OR name = :name)
    AND (CAST(:name_like AS TEXT) IS NULL OR lower(name) LIKE lower(:name_like) ESCAPE '\')
    AND (:any_state = 1 OR state = ANY(:states))
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: select_carts_by_prefix
-- Carts whose id lies in a range.
SELECT * FROM cart WHERE id >= :id_from AND id < :id_to AND project = :project AND state <> 'LOADING'
ORDER BY id LIMIT :limit;

-- name: carts_due
-- Carts of these shards that may go on: their time has come, or something of theirs has ended. EXISTS
-- would become a join with the open items of all carts.
SELECT id, project, rules FROM cart
WHERE id IN (
    SELECT id FROM cart WHERE look_at <= :now AND shard = ANY(:shards)
    UNION SELECT cart.id FROM cart WHERE cart.shard = ANY(:shards) AND cart.open > 0
        AND 1 = (SELECT 1 FROM cart_item JOIN run ON run.id = cart_item.run
            WHERE cart_item.cart = cart.id AND cart_item.state = 'OPEN' AND run.ended_at IS NOT NULL LIMIT 1)
    UNION SELECT cart.id FROM cart JOIN run ON run.id = cart.check_run
        WHERE cart.check_run IS NOT NULL AND cart.shard = ANY(:shards)
            AND cart.state = 'WAITING' AND cart.reason = 'check' AND run.ended_at IS NOT NULL)
ORDER BY id LIMIT :limit;

-- name: next_cart_look
-- When the next cart may go on by itself.
SELECT min(look_at) AS look_at FROM cart WHERE look_at IS NOT NULL;

-- name: versions_of_items
-- The jobs of the same, with the versions that they are to run.
SELECT DISTINCT job_id, job_version FROM cart_item
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause);

-- name: select_items
-- Items of a cart, by number.
SELECT cart_item.*, run.state AS run_state, run.pool AS run_pool, run.message, job.name AS job
FROM cart_item JOIN job ON job.id = cart_item.job_id LEFT JOIN run ON run.id = cart_item.run
WHERE cart_item.cart = :cart AND cart_item.number > :after
    AND (:any_state = 1 OR cart_item.state = ANY(:states))
    AND (CAST(:wave AS BIGINT) IS NULL OR cart_item.wave = :wave)
    AND (CAST(:cause AS TEXT) IS NULL OR cart_item.cause = :cause)
    AND (:any_key = 1 OR cart_item.key = ANY(:keys))
    AND (:only_attempted = 0 OR cart_item.key IN
        (SELECT item FROM run WHERE run.cart = :cart AND run.attempt > 0))
ORDER BY cart_item.number LIMIT :limit;

-- name: item_states
-- How many items of a cart are in each state.
SELECT state, count(*) AS count FROM cart_item WHERE cart = :cart GROUP BY state;

-- name: wave_places
-- How many waves a cart has, and how many of them are not after this one.
SELECT count(DISTINCT wave) AS total, count(DISTINCT CASE WHEN wave <= :wave THEN wave END) AS place
FROM cart_item WHERE cart = :cart;

-- name: unfinished_waves
-- How many items the next waves still have to do.
SELECT wave, count(*) AS count FROM cart_item
WHERE cart = :cart AND state IN ('PENDING', 'OPEN') GROUP BY wave ORDER BY wave LIMIT :limit;

-- name: select_waves
-- How many items of each of the next waves are in each state.
SELECT wave, state, count(*) AS count FROM cart_item
WHERE cart = :cart AND wave IN (SELECT DISTINCT wave FROM cart_item
    WHERE cart = :cart AND wave > :after ORDER BY wave LIMIT :limit)
GROUP BY wave, state;

-- name: select_failure_groups
-- Causes of failures, the most frequent first, each with its first item.
SELECT failure.cause, failure.count, cart_item.key, cart_item.run, run.message
FROM (SELECT cause, count(*) AS count, min(number) AS number FROM cart_item
        WHERE cart = :cart AND state IN ('FAILED', 'TIMED_OUT') GROUP BY cause) AS failure
    JOIN cart_item ON cart_item.cart = :cart AND cart_item.number = failure.number
    LEFT JOIN run ON run.id = cart_item.run
ORDER BY failure.count DESC, failure.cause LIMIT :limit;

-- name: select_cells
-- The states of items by number, that of its run while one is open; in a row there may be several.
-- What is queued where nobody serves is shown as blocked.
SELECT CASE WHEN cart_item.state <> 'OPEN' THEN cart_item.state
    WHEN run.state = 'QUEUED' AND NOT (run.pool = ANY(:served)) THEN 'BLOCKED' ELSE run.state END AS states
FROM cart_item LEFT JOIN run ON run.id = cart_item.run AND cart_item.state = 'OPEN'
WHERE cart_item.cart = :cart ORDER BY cart_item.number;

-- name: open_runs_seen
-- How many runs of a cart's open items are in each state; what is queued where nobody serves is shown as blocked.
SELECT CASE WHEN run.state = 'QUEUED' AND NOT (run.pool = ANY(:served)) THEN 'BLOCKED' ELSE run.state END AS seen,
    count(*) AS count
FROM cart_item JOIN run ON run.id = cart_item.run
WHERE cart_item.cart = :cart AND cart_item.state = 'OPEN' GROUP BY seen;

-- name: select_templates
-- Templates of a project by name.
SELECT * FROM cart_template WHERE project = :project AND (:any_name = 1 OR name = ANY(:names))
ORDER BY name;

-- name: insert_template
-- A template that is new.
INSERT INTO cart_template (project, name, version, document, digest, set_name, shard, next_at, anchor,
    updated_by, updated_at)
VALUES (:project, :name, 1, :document, :digest, :set_name, :shard, :next_at, :anchor, :actor, :now)
ON CONFLICT DO NOTHING;

-- name: update_template
-- A template that is as somebody saw it.
UPDATE cart_template SET version = version + 1, document = :document, digest = :digest,
    set_name = :set_name, next_at = :next_at, anchor = :anchor, updated_by = :actor, updated_at = :now
WHERE project = :project AND name = :name AND version = :version
    AND coalesce(next_at, -1) = coalesce(CAST(:expected_next_at AS BIGINT), -1);

-- name: delete_template
-- The same, to be forgotten.
DELETE FROM cart_template WHERE project = :project AND name = :name AND version = :version;

-- name: due_templates
-- Templates of these shards whose time has come.
SELECT * FROM cart_template WHERE next_at <= :now AND shard = ANY(:shards) ORDER BY next_at LIMIT :limit;

-- name: next_due_template
-- When the next template becomes a cart by itself.
SELECT min(next_at) AS next_at FROM cart_template WHERE next_at IS NOT NULL;

-- name: move_template
-- A due time of a template is answered.
UPDATE cart_template SET next_at = :next_at
WHERE project = :project AND name = :name AND version = :version AND next_at = :due_at;

-- name: stranded_items
-- The first items of a cart that wait for a worker which is not there.
SELECT cart_item.key, run.id, run.reasons, run.drop_at FROM cart_item JOIN run ON run.id = cart_item.run
WHERE cart_item.cart = :cart AND cart_item.state = 'OPEN' AND run.state = 'BLOCKED'
    AND run.blocked_on > 'worker:' AND run.blocked_on < 'worker;'
ORDER BY cart_item.number LIMIT :limit;
