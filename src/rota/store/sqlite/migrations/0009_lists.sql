-- Lists of one project read nothing of others, whichever it is: `default` has an index, too. Neither changes at a
-- claim; the end of a run takes its entry out of the second one, which has what is not over.
DROP INDEX run_project;
CREATE INDEX run_project ON run (project, seq);
CREATE INDEX run_open ON run (project, seq) WHERE ended_at IS NULL;

-- Jobs of one user, in the order in which they are listed.
DROP INDEX job_creator;
CREATE INDEX job_creator ON job (created_by, project, name) WHERE deleted_at IS NULL;
