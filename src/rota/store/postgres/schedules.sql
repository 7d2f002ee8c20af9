-- name: begin_stuck
-- Jobs of which somebody has to be told that they are stuck; one that is changing, another time.
UPDATE job SET stuck_since = :now WHERE id IN (SELECT id FROM job
    WHERE id = ANY(:ids) AND stuck_since IS NULL FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, project;

-- name: end_stuck
-- Jobs that were stuck and are not among these, which still hold runs back.
UPDATE job SET stuck_since = NULL WHERE id IN (SELECT id FROM job
    WHERE stuck_since IS NOT NULL AND NOT id = ANY(:ids) FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, project;
