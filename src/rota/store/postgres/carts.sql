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

-- name: lock_carts
-- One transaction at a time decides about these carts.
SELECT FROM cart WHERE id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE;

-- name: lock_used_carts
-- These carts are neither paused nor resumed while runs of theirs pass the gates.
SELECT FROM cart WHERE id = ANY(:ids) ORDER BY id FOR SHARE;
