-- name: select_cells
-- The states of items by number, that of its run while one is open; in a row there may be several.
-- What is queued where nobody serves is shown as blocked.
SELECT string_agg(CASE WHEN cart_item.state <> 'OPEN' THEN cart_item.state
    WHEN run.state = 'QUEUED' AND NOT (run.pool = ANY(:served)) THEN 'BLOCKED' ELSE run.state END, ' '
    ORDER BY cart_item.number) AS states
FROM cart_item LEFT JOIN run ON run.id = cart_item.run AND cart_item.state = 'OPEN'
WHERE cart_item.cart = :cart GROUP BY cart_item.number / 1000 ORDER BY cart_item.number / 1000;
