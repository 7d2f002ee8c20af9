-- name: inputs_with_files
-- A set of carts instead of a join, which would be planned as a walk through all items there ever were.
SELECT active_run.inputs FROM active_run
WHERE coalesce(active_run.project, '') = :project AND active_run.inputs LIKE :like
UNION SELECT cart_item.inputs FROM cart_item WHERE cart_item.inputs LIKE :like
    AND cart_item.cart = ANY(ARRAY(
        SELECT cart.id FROM cart WHERE cart.project = :project AND cart.ended_at IS NULL));
