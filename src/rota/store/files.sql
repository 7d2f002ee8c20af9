-- name: add_file_sum
-- A row for the sum of a project's files.
INSERT INTO file_sum (project, bytes) VALUES (:project, 0) ON CONFLICT (project) DO NOTHING;

-- name: reserve_bytes
-- Add to the sum of a project's files, unless it becomes too much; what is less is always possible.
UPDATE file_sum SET bytes = bytes + :more
WHERE project = :project AND (:more <= 0 OR CAST(:most AS BIGINT) IS NULL OR bytes + :more <= :most)
RETURNING bytes;

-- name: sum_of_files
-- How much a project has in files.
SELECT bytes FROM file_sum WHERE project = :project;

-- name: insert_file
-- A file whose bytes are about to come.
INSERT INTO file (id, project, digest, size, state, made_at, keep_until)
VALUES (:id, :project, :digest, :size, 'writing', :now, :keep_until);

-- name: grow_file
-- More of a file is reserved; it is not abandoned.
UPDATE file SET size = size + :more, keep_until = :keep_until WHERE id = :id AND state = 'writing' RETURNING id;

-- name: written_file
-- A file that is being written.
SELECT size FROM file WHERE id = :id AND state = 'writing';

-- name: settle_file
-- All bytes of a file are there; or nobody needs them.
UPDATE file SET size = :size, state = :state, keep_until = :keep_until WHERE id = :id;

-- name: kept_files
-- Those of these files that a project has.
SELECT id, project, digest, size FROM file
WHERE project = :project AND digest = ANY(:digests) AND state = 'kept';

-- name: keep_files
-- Files are kept until then at least.
UPDATE file SET keep_until = :keep_until
WHERE project = :project AND digest = ANY(:digests) AND state = 'kept' AND keep_until < :keep_until;

-- name: spent_files
-- Files whose time is over and that no artifact needs.
SELECT id, project, digest, size, state FROM file
WHERE keep_until <= :now AND (state <> 'kept' OR NOT EXISTS (SELECT 1 FROM artifact
    WHERE artifact.project = file.project AND artifact.digest = file.digest))
ORDER BY keep_until LIMIT :limit;

-- name: doom_files
-- Files go whose time is still over and that no artifact needs.
UPDATE file SET state = 'going' WHERE id = ANY(:ids) AND keep_until <= :now
    AND (state <> 'kept' OR NOT EXISTS (SELECT 1 FROM artifact
        WHERE artifact.project = file.project AND artifact.digest = file.digest))
RETURNING id;

-- name: projects_of_files
-- The projects of these files.
SELECT DISTINCT project FROM file WHERE id = ANY(:ids);

-- name: delete_files
-- Files whose bytes are gone.
DELETE FROM file WHERE id = ANY(:ids) RETURNING project, size;

-- name: documents_with_files
-- What may name files in a project: jobs, the versions that live runs have, templates of carts.
-- Versions are looked up one at a time: joins would be planned as walks through all there ever were.
SELECT document FROM (
    SELECT (SELECT job_version.document FROM job_version WHERE job_version.job_id = named.job_id
        AND job_version.version = named.version AND job_version.document LIKE :like) AS document
    FROM (SELECT job.id AS job_id, job.version FROM job
        WHERE job.project = :project AND job.deleted_at IS NULL
        UNION SELECT active_run.job_id, active_run.job_version FROM active_run
        WHERE coalesce(active_run.project, '') = :project) AS named) AS documented
WHERE document IS NOT NULL
UNION SELECT cart_template.document FROM cart_template
WHERE cart_template.project = :project AND cart_template.document LIKE :like;

-- name: inputs_with_files
-- Inputs of live runs, and of items of live carts, that may be files.
SELECT active_run.inputs FROM active_run
WHERE coalesce(active_run.project, '') = :project AND active_run.inputs LIKE :like
UNION SELECT cart_item.inputs FROM cart JOIN cart_item ON cart_item.cart = cart.id
WHERE cart.project = :project AND cart.ended_at IS NULL AND cart_item.inputs LIKE :like;

-- name: held_attempt
-- An attempt that goes on in a session.
SELECT run.project, run.job_id, run.job_version, run.inputs FROM run
WHERE run.id = :run AND run.attempt = :attempt AND coalesce(run.session, '') = :session
    AND coalesce(run.state, '') IN ('CLAIMED', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1);

-- name: keep_artifact
-- A file that a step left behind; what it left there before is replaced.
INSERT INTO artifact (run_id, attempt, step, path, project, digest, size, kept_at, keep_until)
VALUES (:run, :attempt, :step, :path, :project, :digest, :size, :now, :keep_until)
ON CONFLICT (run_id, attempt, step, path) DO UPDATE SET digest = excluded.digest, size = excluded.size,
    kept_at = excluded.kept_at, keep_until = excluded.keep_until;

-- name: select_artifacts
-- Artifacts of a run, by attempt, step and path.
SELECT * FROM artifact
WHERE run_id = :run AND (attempt, step, path) > (:after_attempt, :after_step, :after_path)
    AND (CAST(:attempt AS BIGINT) IS NULL OR attempt = :attempt)
    AND (CAST(:step AS BIGINT) IS NULL OR step = :step)
    AND (CAST(:path AS TEXT) IS NULL OR path = :path)
ORDER BY attempt, step, path LIMIT :limit;

-- name: forget_artifacts
-- Artifacts whose time is over.
DELETE FROM artifact WHERE (run_id, attempt, step, path) IN (
    SELECT run_id, attempt, step, path FROM artifact WHERE keep_until <= :now ORDER BY keep_until LIMIT :limit)
RETURNING run_id;
