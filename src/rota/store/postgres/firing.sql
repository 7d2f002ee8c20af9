-- name: advance_schedule
-- Move a schedule on from the due time that was answered. It is found by its key: very many schedules
-- have the same due time, and going through them for each of these would take its square.
UPDATE schedule SET next_at = move.next_at, waits = move.waits,
    answered_to = greatest(schedule.answered_to, move.answered_to)
FROM unnest(:next_at::bigint[], :waits::integer[], :answered_to::bigint[], :id::text[],
    :claimed::bigint[], :version::integer[])
    AS move (next_at, waits, answered_to, id, claimed, version)
WHERE schedule.job_id = move.id AND schedule.next_at IS NOT DISTINCT FROM move.claimed
    AND schedule.version = move.version;
