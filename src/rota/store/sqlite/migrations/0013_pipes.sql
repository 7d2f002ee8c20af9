-- Jobs follow other ends than completed runs, too.
ALTER TABLE dependency ADD COLUMN ends TEXT NOT NULL DEFAULT 'completed'; -- completed, failed or ended
DROP INDEX dependency_upstream;
CREATE INDEX dependency_upstream ON dependency (project, upstream, ends);
ALTER TABLE upstream_end ADD COLUMN state TEXT NOT NULL DEFAULT 'COMPLETED'; -- of the run that is followed
