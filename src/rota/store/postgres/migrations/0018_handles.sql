-- What names the work of a run in another system, as JSON: kept by one attempt for the next.
ALTER TABLE run ADD COLUMN handle TEXT; -- NULL: there is no such work, or none that goes on
CREATE OR REPLACE VIEW active_run AS -- with the column that came
    SELECT * FROM run WHERE state = 'SCHEDULED'
    UNION ALL SELECT * FROM run WHERE state = 'BLOCKED'
    UNION ALL SELECT * FROM run WHERE state = 'QUEUED'
    UNION ALL SELECT * FROM run WHERE state IN ('CLAIMED', 'PROCESSING')
    UNION ALL SELECT * FROM run WHERE state = 'UNKNOWN';
