-- Jobs follow other ends than completed runs, too.
ALTER TABLE dependency ADD COLUMN ends TEXT COLLATE "C" NOT NULL DEFAULT 'completed'; -- completed, failed or ended
DROP INDEX dependency_upstream;
CREATE INDEX dependency_upstream ON dependency (project, upstream, ends);
ALTER TABLE upstream_end ADD COLUMN state TEXT COLLATE "C" NOT NULL DEFAULT 'COMPLETED'; -- of the run that is followed
