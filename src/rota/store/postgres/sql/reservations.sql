-- name: reserved_run
-- A run that a worker was kept free for, if it still waits and nobody else is about to change it.
SELECT seq, chain, shape, keys, expected, timeout FROM run WHERE seq = :seq AND state = 'QUEUED'
FOR NO KEY UPDATE SKIP LOCKED;
