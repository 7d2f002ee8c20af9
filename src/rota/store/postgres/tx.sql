-- name: insert_event
-- One batch transition or change. Its position is built of `tick`, the highest number of a transaction that
-- is known to it (its own, or the latest that has ended), and of a number that is drawn here. Whoever
-- changes a run has waited for those who changed it before: it sees a tick that is not lower, and
-- draws a higher number. So events are recorded after the rows that they are about are locked.
INSERT INTO event (seq, tick, kind, at, actor, project, ids, data)
SELECT (clock.tick << 16) + nextval('event_number'), clock.tick, new.kind, new.at, new.actor,
    new.project, new.ids, new.data
FROM unnest(:kind::text[], :now::bigint[], :actor::text[], :project::text[], :ids::text[],
        :data::text[]) AS new (kind, at, actor, project, ids, data),
    (SELECT greatest(pg_current_xact_id()::text::bigint,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1) AS tick) AS clock;

-- name: learn_duration
-- Move the average of a job's durations, of which so much is kept, towards new ones. A job that somebody
-- else has locked learns another time: to wait for it would be out of order.
UPDATE job SET expected_seconds = coalesce(new.mean + (expected_seconds - new.mean) * new.keep, new.mean)
FROM unnest(:mean::float8[], :keep::float8[], :id::text[]) AS new (mean, keep, id)
WHERE job.id = new.id AND job.id IN (SELECT free.id FROM job AS free
    WHERE free.id = ANY(:id::text[]) FOR NO KEY UPDATE SKIP LOCKED);
