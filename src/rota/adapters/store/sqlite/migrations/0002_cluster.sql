-- Several servers on one store: who they are, and which shards of the schedules each one fires.

CREATE TABLE server (
    id         TEXT PRIMARY KEY, -- one life of a server process
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,
    roles      TEXT NOT NULL,
    zone       TEXT NOT NULL,
    version    TEXT NOT NULL,
    lease      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    stopping   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE shard (
    number   INTEGER PRIMARY KEY,
    owner    TEXT, -- a server; NULL: nobody
    epoch    INTEGER NOT NULL DEFAULT 0, -- how often it was taken: the fence of its owner
    taken_at INTEGER
) STRICT;
INSERT INTO shard (number)
WITH RECURSIVE numbers (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number FROM numbers;

-- Which server a worker talks to, and how often it connected anew: the fence of that server.
ALTER TABLE session ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN stream INTEGER NOT NULL DEFAULT 1;

-- Workers that shall finish what they hold and get nothing new, by name: it outlives a restart.
CREATE TABLE drained_worker (
    name       TEXT PRIMARY KEY,
    drained_by TEXT NOT NULL,
    drained_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The only pool that a worker with this token may serve; NULL: any, or not a worker's token.
ALTER TABLE token ADD COLUMN pool TEXT;
