-- name: select_declarations
-- Declarations of a project and a kind, or of all.
SELECT kind, project, name, document, updated_by, updated_at FROM declaration
WHERE (CAST(:project AS TEXT) IS NULL OR project = :project) AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
ORDER BY kind, project, name;

-- name: begin_rekeying
-- Something was declared for all runs of a project.
-- many: project text, now bigint; ORDER BY project
INSERT INTO rekeying (project, since, after) VALUES (:project, :now, 0)
ON CONFLICT (project) DO UPDATE SET since = excluded.since, after = 0;

-- name: rekeying
-- A project whose runs are to take keys that were declared after them.
SELECT project, since, after FROM rekeying ORDER BY project LIMIT 1;

-- name: active_seqs
-- Runs of a project that are not final, from one on.
SELECT seq FROM active_run WHERE coalesce(project, '') = :project AND seq > :after ORDER BY seq LIMIT :limit;

-- name: runs_to_rekey
-- What tells the keys of these runs, as far as they are not final.
SELECT seq, state, job_id, job_version, inputs, keys, CASE WHEN trigger IN ('schedule', 'after')
    THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE created_by END AS asker
FROM run WHERE seq = ANY(:seqs)
    AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN');

-- name: set_run_keys
-- Which keys a run takes.
-- many: keys text, seq bigint
UPDATE run SET keys = :keys WHERE seq = :seq;

-- name: go_on_rekeying
-- So far it is done.
UPDATE rekeying SET after = :next_after WHERE project = :project AND since = :since AND after = :after;

-- name: end_rekeying
-- It is done.
DELETE FROM rekeying WHERE project = :project AND since = :since AND after = :after;

-- name: declaration_to_change
-- A declaration that is to change or to go.
-- postgres: FOR UPDATE
SELECT kind, document FROM declaration WHERE kind = :kind AND project = :project AND name = :name;

-- name: save_declaration
-- Create or replace it.
INSERT INTO declaration (kind, project, name, document, updated_by, updated_at)
VALUES (:kind, :project, :name, :document, :actor, :now)
ON CONFLICT (kind, project, name) DO UPDATE SET document = excluded.document,
    updated_by = excluded.updated_by, updated_at = excluded.updated_at;

-- name: delete_declaration
-- Forget it.
DELETE FROM declaration WHERE kind = :kind AND project = :project AND name = :name RETURNING name;

-- name: users_of_resource
-- Jobs that use a named resource now.
SELECT job.name FROM job
JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
WHERE job.project = :project AND job.deleted_at IS NULL
    AND EXISTS (SELECT 1 FROM json_each(job_version.rules, '$.uses') WHERE json_each.key = :name)
ORDER BY job.name LIMIT :limit;

-- name: count_waiting
-- How many runs of a project wait, up to a limit.
SELECT count(*) AS runs FROM (SELECT 1 FROM active_run
    WHERE coalesce(project, '') = :project AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')
    LIMIT :limit) AS waiting;

-- name: count_of_project
-- How many jobs a project has, and how many of its runs wait.
SELECT (SELECT count(*) FROM job WHERE project = :project AND deleted_at IS NULL) AS jobs,
    (SELECT count(*) FROM active_run WHERE coalesce(project, '') = :project
        AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED')) AS waiting;

-- name: next_key_at
-- When the next run that waits for tokens may go, of those whose time had not come before.
SELECT min(eligible_at) AS eligible_at FROM run
WHERE state = 'BLOCKED' AND keys IS NOT NULL AND eligible_at > :after;

-- name: key_holders
-- Runs that hold these keys, as `key_amounts` counts them, the oldest of each first.
SELECT key, id FROM (SELECT run_key.key, run.id, run_key.seq,
        row_number() OVER (PARTITION BY run_key.key ORDER BY run_key.seq) AS place
    FROM run_key JOIN run ON run.seq = run_key.seq
    WHERE run_key.key = ANY(:keys) AND (coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
        OR (coalesce(run.state, '') = 'UNKNOWN' AND run_key.key LIKE 'exclusive:%'))) AS holder
WHERE place <= :limit ORDER BY key, place;

-- name: count_key_waiters
-- How many runs wait for each of these keys.
SELECT blocked_on AS key, count(*) AS runs FROM run
WHERE state = 'BLOCKED' AND keys IS NOT NULL AND blocked_on = ANY(:keys) GROUP BY blocked_on;
