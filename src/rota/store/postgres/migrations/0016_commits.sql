-- The commit that a run was fetched at: all its attempts have the same code.
ALTER TABLE run ADD COLUMN source_commit TEXT COLLATE "C"; -- NULL: none was fetched yet, or its code is not from git
CREATE OR REPLACE VIEW active_run AS -- with the column that came
    SELECT * FROM run WHERE state = 'SCHEDULED'
    UNION ALL SELECT * FROM run WHERE state = 'BLOCKED'
    UNION ALL SELECT * FROM run WHERE state = 'QUEUED'
    UNION ALL SELECT * FROM run WHERE state IN ('CLAIMED', 'PROCESSING')
    UNION ALL SELECT * FROM run WHERE state = 'UNKNOWN';
