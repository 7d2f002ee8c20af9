-- name: insert_backfill
-- A backfill, before its runs.
INSERT INTO backfill (id, job_id, max_parallel, created_by, created_at, runs, first, last, skipped)
VALUES (:id, :job, :max_parallel, :actor, :now, :runs, :first, :last, :skipped);

-- name: select_backfills
-- These backfills.
SELECT * FROM backfill WHERE id = ANY(:ids);

-- name: scheduled_due_runs
-- These runs of a schedule, as answers to their due times.
SELECT id, seq, due_at, state FROM run WHERE id = ANY(:ids);

-- name: backfilled_due_runs
-- The runs of backfills for due times of a job, newest first.
SELECT id, seq, due_at, state FROM run
WHERE job_id = :job AND backfill IS NOT NULL AND due_at >= :first AND due_at <= :last
ORDER BY seq DESC LIMIT :limit;
