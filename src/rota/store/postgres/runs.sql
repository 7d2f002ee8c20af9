-- name: select_active_runs
-- Runs of `default` that are not final, newest first, found among those of all projects.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.seq IN (SELECT seq FROM active_run)
    AND run.project = :project AND run.seq + 0 < :before_seq AND run.state = ANY(:states)
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- Readers pass only events whose tick is below the oldest transaction under way: whatever commits
-- later has a higher tick, and so a higher position (see `insert_event`).

-- name: select_events
-- Events past a position.
SELECT * FROM event
WHERE seq > :after AND tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY seq LIMIT :limit;

-- name: select_events_of
-- Events past a position that name one of these.
SELECT * FROM event
WHERE seq > :after AND tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    AND EXISTS (SELECT 1 FROM json_array_elements_text(event.ids::json) AS named (value)
        WHERE named.value = ANY(:ids))
ORDER BY seq LIMIT :limit;

-- name: select_events_in
-- Events of some projects past a position, or those of them that name one of these. Found between two ends and
-- sorted by both columns of their index: it leads, however few projects there seem to be. Of each no more are read
-- than are wanted, and of others none.
SELECT mine.* FROM json_array_elements_text(CAST(:projects AS TEXT)::json) AS wanted (project)
CROSS JOIN LATERAL (SELECT * FROM event
    WHERE event.project >= wanted.project AND event.project <= wanted.project AND seq > :after
        AND tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        AND (:any_id = 1
            OR EXISTS (SELECT 1 FROM json_array_elements_text(event.ids::json) AS named (value)
                WHERE named.value = ANY(:ids)))
    ORDER BY event.project, seq LIMIT :limit) AS mine
ORDER BY mine.seq LIMIT :limit;

-- name: first_of_latest_events_in
-- The oldest of the latest so many events of some projects, or of those of them that name one of these.
SELECT min(seq) AS seq FROM (
    SELECT mine.seq FROM json_array_elements_text(CAST(:projects AS TEXT)::json) AS wanted (project)
    CROSS JOIN LATERAL (SELECT seq FROM event
        WHERE event.project >= wanted.project AND event.project <= wanted.project
            AND tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
            AND (:any_id = 1
                OR EXISTS (SELECT 1 FROM json_array_elements_text(event.ids::json) AS named (value)
                    WHERE named.value = ANY(:ids)))
        ORDER BY event.project DESC, seq DESC LIMIT :count) AS mine
    ORDER BY mine.seq DESC LIMIT :count
) AS latest;

-- name: first_of_latest_events
-- The oldest of the latest so many events, or of those that name one of these.
SELECT min(seq) AS seq FROM (
    SELECT seq FROM event
    WHERE tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        AND (:any_id = 1
            OR EXISTS (SELECT 1 FROM json_array_elements_text(event.ids::json) AS named (value)
                WHERE named.value = ANY(:ids)))
    ORDER BY seq DESC LIMIT :count
) AS latest;
