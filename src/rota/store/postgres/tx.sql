-- name: insert_event
-- One batch transition or change.
INSERT INTO event (seq, kind, at, actor, project, ids, data)
SELECT mine.first + mine.count + new.place - 1, new.kind, new.at, new.actor, new.project, new.ids,
    new.data
FROM unnest(:kind::text[], :now::bigint[], :actor::text[], :project::text[], :ids::text[],
        :data::text[]) WITH ORDINALITY AS new (kind, at, actor, project, ids, data, place),
    (SELECT first, (SELECT count(*) FROM event WHERE seq >= first AND seq < first + 65536) AS count
        FROM (SELECT pg_current_xact_id()::text::bigint << 16 AS first) AS own) AS mine;
