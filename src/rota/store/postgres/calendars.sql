-- name: lock_calendars
-- Calendars that are to change or to go.
SELECT FROM calendar WHERE project = :project AND name = ANY(:names) ORDER BY name FOR UPDATE;

-- name: lock_used_calendars
-- Calendars that must neither change nor go while jobs begin to use them.
SELECT FROM calendar WHERE project = :project AND name = ANY(:names) ORDER BY name FOR SHARE;
