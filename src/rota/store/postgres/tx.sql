-- name: insert_event
-- One batch transition or change.
INSERT INTO event (seq, kind, at, actor, project, ids, data)
SELECT mine.first + mine.count + new.place - 1, new.kind, new.at, new.actor, new.project, new.ids,
    new.data
FROM unnest(:kind::text[], :now::bigint[], :actor::text[], :project::text[], :ids::text[],
        :data::text[]) WITH ORDINALITY AS new (kind, at, actor, project, ids, data, place),
    (SELECT first, (SELECT count(*) FROM event WHERE seq >= first AND seq < first + 65536) AS count
        FROM (SELECT pg_current_xact_id()::text::bigint << 16 AS first) AS own) AS mine;

-- name: count_ends
-- How many runs of a job ended in a state.
INSERT INTO tally (job, state, count)
SELECT * FROM unnest(:job::text[], :state::text[], :count::bigint[]) AS new (job, state, count)
ORDER BY job, state
ON CONFLICT (job, state) DO UPDATE SET count = tally.count + excluded.count;

-- name: count_delays
-- How late runs of a pool had started, by bucket.
INSERT INTO start_delay (pool, up_to, count, seconds)
SELECT * FROM unnest(:pool::text[], :up_to::float8[], :count::bigint[], :seconds::float8[])
    AS new (pool, up_to, count, seconds)
ORDER BY pool, up_to
ON CONFLICT (pool, up_to) DO UPDATE SET count = start_delay.count + excluded.count,
    seconds = start_delay.seconds + excluded.seconds;
