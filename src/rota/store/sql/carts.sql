-- Written around a column, coalesce keeps it out of the access path: ids lead.

-- name: insert_cart
-- A cart whose items are still to come.
INSERT INTO cart (id, project, name, shard, document, rules, state, items, created_by, created_at, starts_at)
VALUES (:id, :project, :name, :shard, :document, :rules, 'LOADING', :items, :created_by, :now, :starts_at);

-- name: insert_item
-- An item that has not started.
INSERT INTO cart_item (cart, number, key, wave, job_id, job_version, inputs, state)
VALUES (:cart, :number, :key, :wave, :job_id, :job_version, :inputs, 'PENDING');

-- name: known_items
-- Items of a cart with these keys.
SELECT number, key FROM cart_item WHERE cart = :cart AND key = ANY(:keys) ORDER BY number;

-- name: count_items
-- How many items a cart has.
SELECT count(*) AS count FROM cart_item WHERE cart = :cart;

-- name: delete_items
-- Items of a cart that never came about, some at a time.
DELETE FROM cart_item
WHERE cart = :cart AND number IN (SELECT number FROM cart_item WHERE cart = :cart ORDER BY number LIMIT :limit)
RETURNING number;

-- name: delete_cart
-- A cart that never came about.
DELETE FROM cart WHERE id = :cart AND state = 'LOADING';

-- name: forgotten_carts
-- Carts whose items stopped coming.
SELECT id FROM cart WHERE state = 'LOADING' AND created_at < :before;

-- name: select_carts_by_id
-- These carts.
SELECT * FROM cart WHERE id = ANY(:ids) AND state <> 'LOADING';

-- name: carts_to_change
-- These carts, which the transaction has locked.
SELECT * FROM cart WHERE id = ANY(:ids) ORDER BY id;

-- name: live_cart
-- The cart of this name that has not ended.
SELECT id FROM cart WHERE project = :project AND name = :name AND ended_at IS NULL AND state <> 'LOADING';

-- name: save_cart
-- All of a cart that changes.
UPDATE cart SET rules = :rules, state = :state, reason = :reason, ending = :ending, version = :version,
    items = :items, open = :open, completed = :completed, failed = :failed, cancelled = :cancelled,
    skipped = :skipped, wave = :wave, current_wave = :current_wave, wave_items = :wave_items,
    wave_failed = :wave_failed, wave_ended_at = :wave_ended_at,
    breach_wave = :breach_wave, check_run = :check_run, approved_by = :approved_by, look_at = :look_at,
    starts_at = :starts_at, started_at = :started_at, ended_at = :ended_at
WHERE id = :id;

-- name: select_carts
-- Carts, newest first.
SELECT * FROM cart
WHERE project = :project AND state <> 'LOADING' AND (created_at, id) < (:before_at, :before_id)
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

-- name: carts_of_runs
-- The carts of these runs.
SELECT DISTINCT cart FROM run WHERE id = ANY(:ids) AND coalesce(cart, '') <> '';

-- name: held_carts
-- Which of these carts let nothing of theirs go.
SELECT id, name, reason FROM cart WHERE id = ANY(:ids) AND (state = 'PAUSED' OR ending IS NOT NULL);

-- name: open_runs
-- How many runs of a cart's open items are in each state.
SELECT run.state, count(*) AS count FROM cart_item JOIN run ON run.id = cart_item.run
WHERE cart_item.cart = :cart AND cart_item.state = 'OPEN' GROUP BY run.state;

-- name: ended_items
-- Open items whose run has ended.
SELECT cart_item.number, run.state, run.message, run.cause, run.ended_at
FROM cart_item JOIN run ON run.id = cart_item.run
WHERE cart_item.cart = :cart AND cart_item.state = 'OPEN' AND run.ended_at IS NOT NULL;

-- name: set_item_state
-- An item has ended.
UPDATE cart_item SET state = :state, cause = :cause WHERE cart = :cart AND number = :number AND state = 'OPEN';

-- name: open_item
-- An item starts.
UPDATE cart_item SET state = 'OPEN', run = :run, runs = runs + 1, cause = ''
WHERE cart = :cart AND number = :number AND state = 'PENDING';

-- name: pending_wave
-- The lowest wave that has items to start, if any.
SELECT wave FROM cart_item WHERE cart = :cart AND state = 'PENDING' ORDER BY wave, number LIMIT 1;

-- name: count_pending
-- How many items of a wave are to start, up to a limit.
SELECT count(*) AS count FROM (SELECT number FROM cart_item
    WHERE cart = :cart AND state = 'PENDING' AND wave = :wave LIMIT :limit) AS pending;

-- name: pending_items
-- Items of a wave that are to start, by age.
SELECT number, key, job_id, job_version, inputs, run FROM cart_item
WHERE cart = :cart AND number IN (SELECT number FROM cart_item
    WHERE cart = :cart AND state = 'PENDING' AND wave = :wave ORDER BY number LIMIT :limit)
ORDER BY number;

-- name: skip_items
-- Items that will not start any more, some at a time.
UPDATE cart_item SET state = 'SKIPPED'
WHERE cart = :cart AND number IN (SELECT number FROM cart_item
    WHERE cart = :cart AND state = 'PENDING' ORDER BY wave, number LIMIT :limit)
RETURNING number;

-- name: wave_states
-- How many items of a wave are in each state.
SELECT state, count(*) AS count FROM cart_item
WHERE cart = :cart AND wave = :wave
    AND state IN ('PENDING', 'OPEN', 'COMPLETED', 'FAILED', 'TIMED_OUT', 'CANCELLED', 'SKIPPED')
GROUP BY state;

-- name: check_state
-- How the check of a cart stands.
SELECT state FROM run WHERE id = :run;

-- name: waiting_runs_of_cart
-- Runs of a cart that no worker holds.
SELECT id, attempt, job_id FROM run
WHERE cart = :cart AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED') ORDER BY seq LIMIT :limit;

-- name: running_runs_of_cart
-- Runs of a cart's items, and its check, that a worker holds and nobody has asked to stop.
SELECT id, session FROM run
WHERE id IN (SELECT run FROM cart_item WHERE cart = :cart AND state = 'OPEN'
        UNION ALL SELECT check_run FROM cart WHERE id = :cart)
    AND state IN ('CLAIMED', 'PROCESSING') AND cancel_at IS NULL;

-- name: gates_of_cart
-- The jobs at whose gates queued runs of a cart count.
SELECT DISTINCT gate_job AS job_id FROM run
WHERE id IN (SELECT run FROM cart_item WHERE cart = :cart AND state = 'OPEN'
        UNION ALL SELECT check_run FROM cart WHERE id = :cart)
    AND state = 'QUEUED' AND gate_job IS NOT NULL;

-- name: hold_runs_of_cart
-- What was queued of a cart waits for the cart from now on.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons, gate_job = NULL
WHERE cart = :cart AND state = 'QUEUED'
RETURNING id, chain, job_id;

-- name: move_waiters_of_cart
-- The same of what waited at another gate, but for what a person holds.
UPDATE run SET blocked_on = :key, reasons = :reasons WHERE cart = :cart AND state = 'BLOCKED'
    AND blocked_on NOT LIKE 'hold:%';

-- name: let_runs_of_cart_go
-- What waited for the cart passes the gates again; its deadline counts from here.
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL, eligible_at = :now,
    deadline_at = :now + (deadline_at - release_at)
WHERE state = 'BLOCKED' AND blocked_on = :key
RETURNING id;

-- name: jobs_that_exist
-- Those of these jobs that are not gone.
SELECT id FROM job WHERE id = ANY(:ids) AND deleted_at IS NULL;

-- name: job_of_name
-- A job by its name.
SELECT id, version FROM job WHERE project = :project AND name = :name AND deleted_at IS NULL;

-- name: begin_cart
-- A cart whose items have all come.
UPDATE cart SET state = :state, look_at = :now WHERE id = :id;

-- name: count_to_retry
-- How many items have ended and are meant, by state.
SELECT state, count(*) AS count FROM cart_item
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause)
GROUP BY state;

-- name: versions_of_items
-- The jobs of the same, with the versions that they are to run.
SELECT DISTINCT job_id, job_version FROM cart_item
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause);

-- name: retry_items
-- The same are to run once more, with new versions of their jobs where these are given.
UPDATE cart_item SET state = 'PENDING', cause = '',
    job_version = coalesce(:versions ->> job_id, job_version)
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause);

-- name: gone_jobs_of_items
-- A job that was deleted, and that the items to start first need.
SELECT name FROM job WHERE deleted_at IS NOT NULL AND id IN (SELECT job_id FROM cart_item
    WHERE cart = :cart AND state = 'PENDING' ORDER BY wave, number LIMIT 1000) LIMIT 1;

-- name: items_out_of_order
-- Open items after a wave whose run nobody has begun.
SELECT cart_item.number, run.id FROM cart_item JOIN run ON run.id = cart_item.run
WHERE cart_item.cart = :cart AND cart_item.state = 'OPEN' AND cart_item.wave > :wave
    AND run.attempt = 0 AND coalesce(run.state, '') IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: put_back_item
-- An item whose run was not begun is to start later, as if it had not been tried.
UPDATE cart_item SET state = 'PENDING', runs = runs - 1,
    run = (SELECT run.retry_of FROM run WHERE run.id = cart_item.run)
WHERE cart = :cart AND number = :number AND state = 'OPEN';

-- name: items_by_key
-- Items of a cart.
SELECT number, key, wave, inputs, state FROM cart_item WHERE cart = :cart AND key = ANY(:keys);

-- name: edit_item
-- An item that has not started.
UPDATE cart_item SET wave = :wave, inputs = :inputs, state = :state
WHERE cart = :cart AND number = :number AND state = 'PENDING';

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
