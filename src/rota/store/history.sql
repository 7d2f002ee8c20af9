-- name: select_events
-- Events past a position.
SELECT * FROM event WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: select_events_of
-- Events past a position that name one of these.
SELECT * FROM event WHERE seq > :after
    AND EXISTS (SELECT 1 FROM json_each(event.ids) AS named WHERE named.value = ANY(:ids))
ORDER BY seq LIMIT :limit;

-- name: select_names
-- How people call the jobs of these runs, and these jobs, carts and workers.
SELECT id, job AS name FROM run WHERE id = ANY(:ids)
UNION ALL SELECT id, name FROM job WHERE id = ANY(:ids)
UNION ALL SELECT id, name FROM cart WHERE id = ANY(:ids)
UNION ALL SELECT id, worker AS name FROM session WHERE id = ANY(:ids);

-- name: last_event
-- The end of the history.
-- postgres: WHERE seq < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 16
SELECT max(seq) AS seq FROM event;

-- name: count_active
-- What is not final, by state and pool.
SELECT state, pool, count(*) AS count FROM active_run GROUP BY state, pool;

-- name: oldest_queued
-- Since when the oldest run of each pool waits for a worker.
SELECT pool, min(queued_at) AS queued_at FROM run WHERE state = 'QUEUED' GROUP BY pool;

-- name: select_tallies
-- How many runs of each job ended in each state.
SELECT job, state, count FROM tally;

-- name: select_start_delays
-- How late runs had started.
SELECT pool, up_to, count, seconds FROM start_delay ORDER BY pool, up_to;

-- name: count_sessions
-- Workers by presence and pool.
SELECT pool, alive, count(*) AS count FROM session WHERE alive = 1 GROUP BY pool, alive;

-- name: set_meta
-- A fact about the store itself.
INSERT INTO meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;
