-- Runs that are due at the same moment.

-- They go by age, some at a time: all that are due at that moment were sorted each time. In SQLite every
-- index ends with the number of the row.
DROP INDEX run_eligible;
CREATE INDEX run_eligible ON run (eligible_at, seq) WHERE state = 'SCHEDULED';
