-- Jobs of one user, in the order in which they are listed.
DROP INDEX job_creator;
CREATE INDEX job_creator ON job (created_by, project, name) WHERE deleted_at IS NULL;
