-- name: show_runs
-- These runs, of any project.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids);

-- name: find_answers
-- The first answers to keys of callers.
SELECT key, digest, answer FROM idempotency WHERE key = ANY(:keys);

-- name: keep_answers
-- Remember answers to keys of callers, each if it is the first one.
INSERT INTO idempotency (key, digest, answer, created_at)
SELECT value ->> 'key', value ->> 'digest', value ->> 'answer', :now FROM json_each(:answers) WHERE true
ON CONFLICT (key) DO NOTHING RETURNING key;

-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id, worker) VALUES (:id, :worker) ON CONFLICT DO NOTHING;

-- name: insert_run
-- A run, in the state the gates gave it.
-- many: id text, project text, job_id text, job text, job_version integer, trigger text,
-- many: state text, cause text, due_at bigint, release_at bigint, eligible_at bigint,
-- many: deadline_at bigint, late_at bigint, drop_at bigint, priority integer, pool text,
-- many: chain text, shape text, delivery text, max_attempts integer, expected float8,
-- many: blocked_on text, reasons text, inputs text, created_by text, created_at bigint,
-- many: queued_at bigint, ended_at bigint, retry_of text, gate_job text, backfill text,
-- many: caught_up integer, cart text, item text, follows text, previous_due bigint, keys text,
-- many: timeout bigint
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, cause, due_at, release_at,
    eligible_at, deadline_at, late_at, drop_at, priority, pool, chain, shape, delivery, max_attempts,
    expected, blocked_on, reasons, inputs, created_by, created_at, queued_at, ended_at, retry_of, gate_job,
    backfill, caught_up, cart, item, follows, previous_due, keys, timeout)
VALUES (:id, :project, :job_id, :job, :job_version, :trigger, :state, :cause, :due_at, :release_at,
    :eligible_at, :deadline_at, :late_at, :drop_at, :priority, :pool, :chain, :shape, :delivery,
    :max_attempts, :expected, :blocked_on, :reasons, :inputs, :created_by, :created_at, :queued_at,
    :ended_at, :retry_of, :gate_job, :backfill, :caught_up, :cart, :item, :follows,
    :previous_due, :keys, :timeout);
