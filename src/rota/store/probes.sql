-- name: runs_to_probe
-- What probes of these runs need of them.
SELECT id, project, job_id, job, job_version, due_at, priority, pool, chain, shape, inputs, created_by, attempt
FROM run WHERE id = ANY(:ids);

-- name: insert_probe
-- What a probe asks about.
-- many: run text, probed text, attempt integer
INSERT INTO probe (run_id, probed, attempt) VALUES (:run, :probed, :attempt);

-- name: probes_of_runs
-- What these probes ask about, with what identifies it to the command.
SELECT probe.run_id, probe.probed, probe.attempt, run.cart, run.item, run.source_commit
FROM probe JOIN run ON run.id = probe.probed WHERE probe.run_id = ANY(:ids);

-- name: any_ended_probe
-- Whether a probe has ended whose answer is still to be taken.
SELECT run_id FROM probe
WHERE settled = 0 AND (SELECT ended_at FROM run WHERE run.id = probe.run_id) IS NOT NULL LIMIT 1;

-- name: ended_probes
-- Probes that have ended whose answers are still to be taken.
SELECT probe.run_id, probe.probed, probe.attempt, run.state, run.cause
FROM probe JOIN run ON run.id = probe.run_id
WHERE probe.settled = 0 AND run.ended_at IS NOT NULL ORDER BY probe.run_id LIMIT :limit;

-- name: settle_probes
-- What these probes found out was done, or they found out nothing.
UPDATE probe SET settled = 1 WHERE run_id = ANY(:ids);

-- name: probes_about
-- The probes that asked about a run, in order.
SELECT probe.run_id, probe.attempt, probe.settled, run.state, run.cause, run.attempt AS tries
FROM probe JOIN run ON run.id = probe.run_id WHERE probe.probed = :run ORDER BY probe.attempt;

-- name: probed_by
-- The run that a probe asks about.
SELECT probed, attempt FROM probe WHERE run_id = :run;

-- name: resolve_runs
-- The doubt about these runs ends, and with it an older request to cancel.
-- many: state text, cause text, eligible_at bigint, ended_at bigint, failures integer, id text
UPDATE run SET state = :state, cause = :cause, eligible_at = :eligible_at, ended_at = :ended_at,
    failures = run.failures + :failures, cancel_at = NULL, cancel_by = ''
WHERE id = :id AND state = 'UNKNOWN';
