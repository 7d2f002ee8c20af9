-- name: waiters
-- The oldest runs that wait on a key, found between two ends and sorted by both columns of their index.
SELECT id FROM run WHERE state = 'BLOCKED' AND blocked_on >= :key AND blocked_on <= :key
ORDER BY blocked_on, seq LIMIT :limit;

-- name: queue_runs
-- Every gate passed. Whether these runs count at the gates of their jobs from now on is given.
UPDATE run SET state = 'QUEUED', blocked_on = NULL, reasons = NULL, eligible_at = NULL, queued_at = :now,
    gate_job = CASE WHEN :counts = 1 THEN job_id END
WHERE seq = ANY(:seqs) AND coalesce(state, '') IN ('SCHEDULED', 'BLOCKED');

-- name: let_runs_go
-- Runs pass the gates again, once it is their time. How long they might wait where they were is over; whether
-- they are dropped when it is too late to start is given.
UPDATE run SET state = 'SCHEDULED', blocked_on = NULL, reasons = NULL,
    eligible_at = CASE WHEN coalesce(eligible_at, 0) > :now AND coalesce(eligible_at, 0) > release_at THEN eligible_at
        WHEN release_at > :now THEN release_at ELSE :now END,
    drop_at = CASE WHEN :drops = 1 THEN late_at END
WHERE seq = ANY(:seqs) AND coalesce(state, '') = 'BLOCKED';

-- name: judge_lateness
-- Whether runs missed their objective, once that can be told. What ended before, without a start,
-- did not.
UPDATE run SET is_late = CASE WHEN coalesce(first_started_at, ended_at) <= late_at THEN 0 ELSE 1 END
WHERE seq IN (SELECT seq FROM run WHERE late_at IS NOT NULL AND is_late IS NULL AND late_at < :now
    ORDER BY late_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id, project, job, is_late;
