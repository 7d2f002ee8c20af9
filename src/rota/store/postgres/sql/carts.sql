-- name: insert_item
-- An item that has not started.
INSERT INTO cart_item (cart, number, key, wave, job_id, job_version, inputs, state)
SELECT cart, number, key, wave, job_id, job_version, inputs, 'PENDING'
FROM unnest(:cart::text[], :number::integer[], :key::text[], :wave::integer[], :job_id::text[],
    :job_version::integer[], :inputs::text[])
    AS new (cart, number, key, wave, job_id, job_version, inputs);

-- name: set_item_state
-- An item has ended.
UPDATE cart_item SET state = ended.state, cause = ended.cause
FROM unnest(:state::text[], :cause::text[], :cart::text[], :number::integer[])
    AS ended (state, cause, cart, number)
WHERE cart_item.cart = ended.cart AND cart_item.number = ended.number AND cart_item.state = 'OPEN';

-- name: open_item
-- An item starts.
UPDATE cart_item SET state = 'OPEN', run = started.run, runs = runs + 1, cause = ''
FROM unnest(:run::text[], :cart::text[], :number::integer[]) AS started (run, cart, number)
WHERE cart_item.cart = started.cart AND cart_item.number = started.number
    AND cart_item.state = 'PENDING';

-- name: retry_items
-- The same are to run once more, with new versions of their jobs where these are given.
UPDATE cart_item SET state = 'PENDING', cause = '',
    job_version = coalesce((CAST(:versions AS TEXT)::jsonb ->> job_id)::integer, job_version)
WHERE cart = :cart AND state = ANY(:states) AND wave >= :from_wave
    AND (:any_key = 1 OR key = ANY(:keys)) AND (CAST(:cause AS TEXT) IS NULL OR cause = :cause);

-- name: select_cells
-- The states of items by number, that of its run while one is open; in a row there may be several.
-- What is queued where nobody serves is shown as blocked.
SELECT string_agg(CASE WHEN cart_item.state <> 'OPEN' THEN cart_item.state
    WHEN run.state = 'QUEUED' AND NOT (run.pool = ANY(:served)) THEN 'BLOCKED' ELSE run.state END, ' '
    ORDER BY cart_item.number) AS states
FROM cart_item LEFT JOIN run ON run.id = cart_item.run AND cart_item.state = 'OPEN'
WHERE cart_item.cart = :cart GROUP BY cart_item.number / 1000 ORDER BY cart_item.number / 1000;
