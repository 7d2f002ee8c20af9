-- A position in the history is the number of the transaction and the place of the event in it.
-- Readers pass only what is below the oldest transaction under way: of what comes later nothing can
-- have a smaller position.

-- name: select_events
-- Events past a position.
SELECT * FROM event
WHERE seq > :after AND seq < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 16
ORDER BY seq LIMIT :limit;

-- name: select_events_of
-- Events past a position that name one of these.
SELECT * FROM event
WHERE seq > :after AND seq < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 16
    AND EXISTS (SELECT 1 FROM json_array_elements_text(event.ids::json) AS named (value)
        WHERE named.value = ANY(:ids))
ORDER BY seq LIMIT :limit;
