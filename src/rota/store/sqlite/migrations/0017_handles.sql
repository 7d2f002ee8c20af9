-- What names the work of a run in another system, as JSON: kept by one attempt for the next.
ALTER TABLE run ADD COLUMN handle TEXT; -- NULL: there is no such work, or none that goes on
