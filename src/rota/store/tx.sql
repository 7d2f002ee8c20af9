-- name: count_served
-- How much a pool has served.
-- many: pool text, served bigint; ORDER BY pool
INSERT INTO pool (name, served) VALUES (:pool, :served)
ON CONFLICT (name) DO UPDATE SET served = pool.served + excluded.served;

-- name: count_rights_change
-- Rights have changed: whoever trusts what was read before has to read again.
-- many: key text
INSERT INTO meta (key, value) VALUES (:key, '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS BIGINT) + 1 AS TEXT);

-- name: insert_event
-- One batch transition or change.
INSERT INTO event (kind, at, actor, project, ids, data) VALUES (:kind, :now, :actor, :project, :ids, :data);

-- name: count_ends
-- How many runs of a job ended in a state.
-- many: job text, state text, count bigint; ORDER BY job, state
INSERT INTO tally (job, state, count) VALUES (:job, :state, :count)
ON CONFLICT (job, state) DO UPDATE SET count = tally.count + excluded.count;

-- name: count_delays
-- How late runs of a pool had started, by bucket.
-- many: pool text, up_to float8, count bigint, seconds float8; ORDER BY pool, up_to
INSERT INTO start_delay (pool, up_to, count, seconds) VALUES (:pool, :up_to, :count, :seconds)
ON CONFLICT (pool, up_to) DO UPDATE SET count = start_delay.count + excluded.count,
    seconds = start_delay.seconds + excluded.seconds;

-- name: learn_duration
-- Move the average of a job's durations, of which so much is kept, towards new ones.
UPDATE job SET expected_seconds = coalesce(:mean + (expected_seconds - :mean) * :keep, :mean)
WHERE id = :id;
