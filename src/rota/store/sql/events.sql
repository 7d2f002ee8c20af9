-- name: insert_event
-- One batch transition or change.
INSERT INTO event (kind, at, actor, project, ids, data) VALUES (:kind, :now, :actor, :project, :ids, :data);

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
SELECT max(seq) AS seq FROM event;
