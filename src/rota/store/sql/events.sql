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

-- name: last_event
-- The end of the history.
SELECT max(seq) AS seq FROM event;
