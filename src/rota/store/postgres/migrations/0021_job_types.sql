-- Types of jobs of plug-ins that workers have ever offered: jobs of other types are refused. A row is written
-- when a worker says hello that has something new to tell, and by nothing else.
CREATE TABLE job_type (
    name        TEXT COLLATE "C" PRIMARY KEY,
    api_version INTEGER NOT NULL, -- of its plug-in; 0: not told
    schema      TEXT NOT NULL, -- JSON Schema of its parameters; {}: they are not checked
    worker      TEXT NOT NULL, -- that told this first
    offered_at  BIGINT NOT NULL
);
