-- name: insert_cart
-- A cart whose items are still to come.
INSERT INTO cart (id, project, name, shard, document, rules, state, items, created_by, created_at, starts_at)
VALUES (:id, :project, :name, :shard, :document, :rules, 'LOADING', :items, :created_by, :now, :starts_at);

-- name: insert_item
-- An item that has not started.
-- many: cart text, number integer, key text, wave integer, job_id text, job_version integer,
-- many: inputs text, needs text, worker text
INSERT INTO cart_item (cart, number, key, wave, job_id, job_version, inputs, needs, worker, state)
VALUES (:cart, :number, :key, :wave, :job_id, :job_version, :inputs, :needs, :worker, 'PENDING');

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

-- name: live_cart
-- The cart of this name that has not ended.
SELECT id FROM cart WHERE project = :project AND name = :name AND ended_at IS NULL AND state <> 'LOADING';

-- name: running_runs_of_cart
-- Runs of a cart's items, and its check, that a worker holds and nobody has asked to stop.
SELECT id, project, session FROM run
WHERE id IN (SELECT run FROM cart_item WHERE cart = :cart AND state = 'OPEN'
        UNION ALL SELECT check_run FROM cart WHERE id = :cart)
    AND state IN ('CLAIMED', 'PROCESSING') AND cancel_at IS NULL;

-- name: let_runs_of_cart_go
-- What waited for the cart passes the gates again; its deadline counts from here.
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL, eligible_at = :now,
    deadline_at = :now + (deadline_at - release_at)
WHERE state = 'BLOCKED' AND blocked_on = :key
RETURNING id;

-- name: begin_cart
-- A cart whose items have all come.
UPDATE cart SET state = :state, look_at = :now WHERE id = :id;

-- name: count_to_retry
-- How many items have ended and are meant, by state.
SELECT state, count(*) AS count FROM cart_item
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause)
GROUP BY state;

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
