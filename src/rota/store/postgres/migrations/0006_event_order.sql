-- Positions of events that respect the order in which a run was changed, not the order in which the
-- transactions got their numbers. Events that are stored keep their positions, which are all lower.

-- The highest number of a transaction that was known when the event was written. Those stored so far have
-- been committed: 0 lets every reader pass them. What a server of an earlier release writes meanwhile
-- has the number of its own transaction, as its position has.
ALTER TABLE event ADD COLUMN tick BIGINT NOT NULL DEFAULT 0;
ALTER TABLE event ALTER COLUMN tick SET DEFAULT pg_current_xact_id()::text::bigint;

-- Tells events of the same tick apart, in the order in which they were written.
CREATE SEQUENCE event_number;
