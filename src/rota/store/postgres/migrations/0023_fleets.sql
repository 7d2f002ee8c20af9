-- Labels that the worker of an item must have, over those of its job, as JSON; NULL: no others.
ALTER TABLE cart_item ADD COLUMN needs TEXT;
-- The one worker that it is for; NULL: any that fits. Of them, few are open.
ALTER TABLE cart_item ADD COLUMN worker TEXT COLLATE "C";
-- Around the state, coalesce tells it from the index of all that is open, which would do as well.
CREATE INDEX cart_item_stranded ON cart_item (worker, run) WHERE worker IS NOT NULL AND coalesce(state, '') = 'OPEN';
-- The one worker that such runs are for: others need not look at them. NULL: any, or it is not known.
ALTER TABLE shape ADD COLUMN worker TEXT COLLATE "C";
CREATE INDEX shape_worker ON shape (worker);
-- Where a worker is or was, by its name.
CREATE INDEX session_worker ON session (worker, alive);
