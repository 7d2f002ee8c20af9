-- name: lease_announcements
-- Announcements that are due, left to one server until then.
UPDATE announcement SET next_at = :until, tries = tries + 1
WHERE id IN (SELECT id FROM announcement WHERE next_at <= :now ORDER BY next_at LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING id, told, run_id, attempt, made_at, tries;
