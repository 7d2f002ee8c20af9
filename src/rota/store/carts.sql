-- Written around a column, coalesce keeps it out of the access path: ids lead.

-- name: carts_to_change
-- These carts, which the transaction has locked.
SELECT * FROM cart WHERE id = ANY(:ids) ORDER BY id;

-- name: save_cart
-- All of a cart that changes.
UPDATE cart SET rules = :rules, state = :state, reason = :reason, ending = :ending, version = :version,
    items = :items, open = :open, completed = :completed, failed = :failed, cancelled = :cancelled,
    skipped = :skipped, wave = :wave, current_wave = :current_wave, wave_items = :wave_items,
    wave_failed = :wave_failed, wave_ended_at = :wave_ended_at,
    breach_wave = :breach_wave, check_run = :check_run, approved_by = :approved_by, look_at = :look_at,
    starts_at = :starts_at, started_at = :started_at, ended_at = :ended_at
WHERE id = :id;

-- name: carts_of_runs
-- The carts of these runs.
SELECT DISTINCT cart FROM run WHERE id = ANY(:ids) AND coalesce(cart, '') <> '';

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
-- many: state text, cause text, cart text, number integer
UPDATE cart_item SET state = :state, cause = :cause WHERE cart = :cart AND number = :number AND state = 'OPEN';

-- name: open_item
-- An item starts.
-- many: run text, cart text, number integer
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
SELECT number, key, job_id, job_version, inputs, run, needs FROM cart_item
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

-- name: gates_of_cart
-- The jobs at whose gates queued runs of a cart count.
SELECT DISTINCT gate_job AS job_id FROM run
WHERE id IN (SELECT run FROM cart_item WHERE cart = :cart AND state = 'OPEN'
        UNION ALL SELECT check_run FROM cart WHERE id = :cart)
    AND state = 'QUEUED' AND gate_job IS NOT NULL;

-- name: block_runs_of_cart
-- What was queued of a cart waits for the cart from now on.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons, gate_job = NULL
WHERE cart = :cart AND state = 'QUEUED'
RETURNING id, project, chain, job_id;

-- name: move_waiters_of_cart
-- The same of what waited at another gate, but for what a person holds. A wait for a worker begins anew after it.
UPDATE run SET blocked_on = :key, reasons = :reasons, drop_at = NULL WHERE cart = :cart AND state = 'BLOCKED'
    AND blocked_on NOT LIKE 'hold:%';

-- name: jobs_that_exist
-- Those of these jobs that are not gone.
SELECT id FROM job WHERE id = ANY(:ids) AND coalesce(deleted_at, 0) = 0;

-- name: job_of_name
-- A job by its name.
SELECT id, version FROM job WHERE project = :project AND name = :name AND deleted_at IS NULL;

-- name: closed_carts
-- Which of these carts let nothing of theirs go.
SELECT id, name, reason FROM cart WHERE id = ANY(:ids) AND (state = 'PAUSED' OR ending IS NOT NULL);
