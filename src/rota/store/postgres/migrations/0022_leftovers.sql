-- Probes: runs that ask how another one ended, each about one attempt that was lost.
CREATE TABLE probe (
    run_id TEXT COLLATE "C" PRIMARY KEY, -- the run that asks
    probed TEXT COLLATE "C" NOT NULL, -- the run that it asks about
    attempt INTEGER NOT NULL, -- which of its attempts
    settled INTEGER NOT NULL DEFAULT 0, -- 1: what it found out was done, or it found out nothing
    UNIQUE (probed, attempt)
);
CREATE INDEX probe_open ON probe (run_id) WHERE settled = 0;
-- The most that a run may ask for in a pool, as JSON: thousandths by resource.
ALTER TABLE pool ADD COLUMN most TEXT; -- NULL: nobody has set it
