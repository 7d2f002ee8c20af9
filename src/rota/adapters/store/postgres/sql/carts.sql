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

-- name: retry_item
-- An item is to run once more, as its job is now.
UPDATE cart_item SET state = 'PENDING', cause = '', job_version = job.version
FROM unnest(:job_id::text[], :cart::text[], :number::integer[]) AS again (job_id, cart, number)
    JOIN job ON job.id = again.job_id
WHERE cart_item.cart = again.cart AND cart_item.number = again.number;
