-- name: insert_shape
-- A demand on workers.
INSERT INTO shape (id) SELECT DISTINCT id FROM unnest(:id::text[]) AS new (id) ORDER BY id
ON CONFLICT DO NOTHING;

-- name: insert_run
-- A run, in the state the gates gave it.
INSERT INTO run (id, project, job_id, job, job_version, trigger, state, cause, due_at, release_at,
    eligible_at, deadline_at, late_at, drop_at, priority, pool, chain, shape, delivery, max_attempts,
    expected, blocked_on, reasons, inputs, created_by, created_at, queued_at, ended_at, retry_of, gate_job,
    backfill, caught_up, cart, item, follows, previous_due, keys, timeout)
SELECT * FROM unnest(:id::text[], :project::text[], :job_id::text[], :job::text[],
    :job_version::integer[], :trigger::text[], :state::text[], :cause::text[], :due_at::bigint[],
    :release_at::bigint[], :eligible_at::bigint[], :deadline_at::bigint[], :late_at::bigint[],
    :drop_at::bigint[], :priority::integer[], :pool::text[], :chain::text[], :shape::text[],
    :delivery::text[], :max_attempts::integer[], :expected::float8[], :blocked_on::text[],
    :reasons::text[], :inputs::text[], :created_by::text[], :created_at::bigint[], :queued_at::bigint[],
    :ended_at::bigint[], :retry_of::text[], :gate_job::text[], :backfill::text[],
    :caught_up::integer[], :cart::text[], :item::text[], :follows::text[], :previous_due::bigint[],
    :keys::text[], :timeout::bigint[]);
