-- Walls: pools that plain processes are kept out of, and the walls of jobs that ask for none.

-- Pools in which no plain process runs while several projects may use them. Stores that were made with
-- this release keep processes out of all shared pools, and need no row here.
CREATE TABLE private_pool (
    pool TEXT PRIMARY KEY
);

-- A store that is in use keeps what it has: processes, also in pools that several projects use. For a new
-- one, the first server decides.
INSERT INTO meta (key, value)
SELECT 'walls', '{"isolation":"process","network":"none","has_shared_process":true}'
WHERE EXISTS (SELECT 1 FROM job) OR EXISTS (SELECT 1 FROM token) OR EXISTS (SELECT 1 FROM session)
    OR EXISTS (SELECT 1 FROM server);
