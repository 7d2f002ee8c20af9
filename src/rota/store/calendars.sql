-- name: select_calendars
-- The calendars of a project.
SELECT * FROM calendar WHERE project = :project ORDER BY name;

-- name: select_calendars_by_name
-- Those of these names, locked for a change.
SELECT * FROM calendar WHERE project = :project AND name = ANY(:names) ORDER BY name;

-- name: upsert_calendar
-- A new calendar, or a new version of one.
INSERT INTO calendar (project, name, document, version, updated_by, updated_at)
VALUES (:project, :name, :document, :version, :actor, :now)
ON CONFLICT (project, name) DO UPDATE SET document = excluded.document, version = excluded.version,
    updated_by = excluded.updated_by, updated_at = excluded.updated_at
WHERE calendar.version = excluded.version - 1;

-- name: delete_calendar
-- Forget a calendar.
DELETE FROM calendar WHERE project = :project AND name = :name;

-- name: forget_calendar_uses
-- These jobs use no calendars.
DELETE FROM calendar_use WHERE job_id = ANY(:ids);

-- name: insert_calendar_use
-- The schedule of a job uses a calendar.
INSERT INTO calendar_use (job_id, project, calendar) VALUES (:job, :project, :calendar)
ON CONFLICT DO NOTHING;

-- name: missing_calendars
-- Calendars that these jobs use and that are not there.
SELECT calendar_use.calendar FROM calendar_use
LEFT JOIN calendar ON calendar.project = calendar_use.project
    AND calendar.name = calendar_use.calendar
WHERE calendar_use.job_id = ANY(:ids) AND calendar.name IS NULL
ORDER BY calendar_use.calendar;

-- name: users_of_calendar
-- Some jobs that use a calendar.
SELECT job.name FROM calendar_use JOIN job ON job.id = calendar_use.job_id
WHERE calendar_use.project = :project AND calendar_use.calendar = :name
ORDER BY job.name LIMIT :limit;

-- name: jobs_with_calendar
-- The jobs that use a calendar.
SELECT job_id FROM calendar_use WHERE project = :project AND calendar = :name;

-- name: unsettle_schedules
-- A calendar changed: whatever was planned for the schedules that use it is stale.
UPDATE schedule SET version = version + 1 WHERE job_id IN (SELECT job_id FROM calendar_use
    WHERE project = :project AND calendar = :name);
