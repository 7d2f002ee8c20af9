-- name: select_ledger_runs
-- The runs that a schedule asked for, by due time.
SELECT id, due_at, pool, state, cause FROM run
WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until
ORDER BY due_at LIMIT :limit;

-- name: select_newest_ledger_runs
-- The runs that a schedule asked for, the last due time first.
SELECT id, due_at, pool, state, cause FROM run
WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until
ORDER BY due_at DESC LIMIT :limit;

-- name: select_newest_unanswered
-- The stretches of due times without runs, the last first.
SELECT first, last, count, state, cause FROM unanswered
WHERE job_id = :job AND last >= :since AND first <= :until
ORDER BY first DESC LIMIT :limit;

-- name: select_unanswered
-- The stretches of due times without runs, by time.
SELECT first, last, count, state, cause FROM unanswered
WHERE job_id = :job AND last >= :since AND first <= :until
ORDER BY first LIMIT :limit;

-- name: ended_pauses
-- Jobs whose pause was to last until now.
SELECT * FROM current_job WHERE paused = 1 AND paused_until IS NOT NULL AND paused_until <= :now
LIMIT :limit;

-- name: next_pause_end
-- When the next pause ends by itself.
SELECT min(paused_until) AS ends_at FROM job
WHERE paused_until > :now AND paused = 1 AND deleted_at IS NULL;

-- name: congested_jobs
-- Scheduled runs whose time has come, not final, of jobs where some wait for others or since long.
SELECT active.job_id, active.waiting, active.oldest_release_at, job.expected_seconds,
    (SELECT cause FROM run WHERE run.job_id = active.job_id AND run.trigger = 'schedule'
        ORDER BY run.seq DESC LIMIT 1) AS newest_cause
FROM (SELECT gate_job AS job_id, min(release_at) AS oldest_release_at,
        count(CASE WHEN state = 'BLOCKED' AND blocked_on = 'job:' || gate_job THEN 1 END) AS waiting
    FROM run
    WHERE gate_job IS NOT NULL AND trigger = 'schedule' AND release_at <= :now
        AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN')
    GROUP BY gate_job) AS active
JOIN job ON job.id = active.job_id
WHERE (active.waiting > 0 OR active.oldest_release_at < :long_ago)
    AND job.paused = 0 AND job.deleted_at IS NULL;

-- name: begin_stuck
-- Jobs of which somebody has to be told that they are stuck.
UPDATE job SET stuck_since = :now WHERE id = ANY(:ids) AND stuck_since IS NULL RETURNING id, project;

-- name: end_stuck
-- Jobs that were stuck and are not among these, which still hold runs back.
UPDATE job SET stuck_since = NULL WHERE stuck_since IS NOT NULL AND NOT id = ANY(:ids) RETURNING id, project;

-- name: next_eligible
-- When the next waiting run may be released.
SELECT min(eligible_at) AS eligible_at FROM run WHERE state = 'SCHEDULED';

-- name: due_schedules
-- Schedules of these shards with a due time before the given one, soonest first.
SELECT schedule.job_id, schedule.next_at, schedule.version AS schedule_version, schedule.anchor,
    schedule.shard, job.version AS job_version
FROM schedule JOIN job ON job.id = schedule.job_id
WHERE schedule.next_at IS NOT NULL AND schedule.next_at < :before
    AND schedule.shard = ANY(:shards)
ORDER BY schedule.next_at LIMIT :limit;

-- name: insert_unanswered
-- A stretch of due times that got no run; it lengthens the one that it goes on from. Should one
-- begin at the same due time, the two are one: what has its answer keeps it, and none is lost.
INSERT INTO unanswered (job_id, first, last, count, state, cause)
SELECT CAST(:job AS TEXT), coalesce((SELECT before.first FROM (
        SELECT first, last, state, cause FROM unanswered
        WHERE job_id = :job AND first <= :previous ORDER BY first DESC LIMIT 1) AS before
    WHERE before.last = :previous AND before.state = :state AND before.cause = :cause), :first),
    CAST(:last AS BIGINT), CAST(:count AS BIGINT), :state, :cause
WHERE true
ON CONFLICT (job_id, first) DO UPDATE SET
    last = CASE WHEN unanswered.last < excluded.last THEN excluded.last ELSE unanswered.last END,
    count = CASE WHEN unanswered.last = :previous THEN unanswered.count + excluded.count
        WHEN unanswered.count < excluded.count THEN excluded.count ELSE unanswered.count END;

-- name: ended_waits
-- Schedules whose latest run has ended, which is what their next due time depends on.
SELECT schedule.job_id, schedule.version AS schedule_version, schedule.anchor,
    job.version AS job_version, run.ended_at
FROM schedule
JOIN job ON job.id = schedule.job_id
JOIN run ON run.seq = (SELECT max(seq) FROM run
    WHERE run.job_id = schedule.job_id AND run.trigger = 'schedule')
WHERE schedule.waits = 1 AND schedule.next_at IS NULL AND schedule.held_from IS NULL
    AND run.ended_at IS NOT NULL
LIMIT :limit;

-- name: rearm_schedule
-- The due time after a run that has ended; held while the job is paused or disabled.
UPDATE schedule SET waits = 0, version = schedule.version + 1,
    next_at = CASE WHEN job.enabled = 1 AND job.paused = 0 THEN CAST(:next_at AS BIGINT) END,
    held_from = CASE WHEN job.enabled = 1 AND job.paused = 0 THEN NULL ELSE CAST(:next_at AS BIGINT) END
FROM job
WHERE job.id = schedule.job_id AND schedule.job_id = :id AND schedule.version = :version
    AND waits = 1 AND next_at IS NULL AND held_from IS NULL;

-- name: select_backfilled_due_times
-- Due times that only a backfill answered, by due time, each with the newest of its runs. What the
-- schedule answered must not count towards the limit: a page would end before the ledger does.
SELECT id, due_at, pool, state, cause FROM run
WHERE job_id = :job AND backfill IS NOT NULL AND due_at >= :since AND due_at <= :until
    AND seq = (SELECT max(seq) FROM run AS other
        WHERE other.job_id = run.job_id AND other.backfill IS NOT NULL AND other.due_at = run.due_at)
    AND due_at NOT IN (SELECT due_at FROM run AS scheduled
        WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until)
    AND coalesce((SELECT last FROM unanswered WHERE job_id = :job AND first <= run.due_at
        ORDER BY first DESC LIMIT 1) < run.due_at, true)
ORDER BY due_at LIMIT :limit;

-- name: select_newest_backfilled_due_times
-- Due times that only a backfill answered, the last first, each with the newest of its runs. What the
-- schedule answered must not count towards the limit: a page would end before the ledger does.
SELECT id, due_at, pool, state, cause FROM run
WHERE job_id = :job AND backfill IS NOT NULL AND due_at >= :since AND due_at <= :until
    AND seq = (SELECT max(seq) FROM run AS other
        WHERE other.job_id = run.job_id AND other.backfill IS NOT NULL AND other.due_at = run.due_at)
    AND due_at NOT IN (SELECT due_at FROM run AS scheduled
        WHERE job_id = :job AND trigger = 'schedule' AND due_at >= :since AND due_at <= :until)
    AND coalesce((SELECT last FROM unanswered WHERE job_id = :job AND first <= run.due_at
        ORDER BY first DESC LIMIT 1) < run.due_at, true)
ORDER BY due_at DESC LIMIT :limit;
