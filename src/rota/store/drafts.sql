-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) VALUES (:id) ON CONFLICT DO NOTHING;

-- name: insert_run
-- A run, in the state the gates gave it.
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, cause, due_at, release_at,
    eligible_at, deadline_at, late_at, drop_at, priority, pool, chain, shape, delivery, max_attempts,
    expected, blocked_on, reasons, inputs, created_by, created_at, queued_at, ended_at, retry_of, gate_job,
    backfill, caught_up, cart, item, follows, previous_due, keys, timeout)
VALUES (:id, :project, :job_id, :job, :job_version, :trigger, :state, :cause, :due_at, :release_at,
    :eligible_at, :deadline_at, :late_at, :drop_at, :priority, :pool, :chain, :shape, :delivery,
    :max_attempts, :expected, :blocked_on, :reasons, :inputs, :created_by, :created_at, :queued_at,
    :ended_at, :retry_of, :gate_job, :backfill, :caught_up, :cart, :item, :follows,
    :previous_due, :keys, :timeout);
