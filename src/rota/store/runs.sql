-- Written around a column, coalesce keeps it out of the access path: an index on what is few (ids,
-- what is not final) leads, never one that grows with history.

-- name: waiting_pools
-- The pools that have chains with runs in them, one after another: each project and user has chains.
WITH RECURSIVE waited (pool) AS (
    SELECT min(pool) FROM chain WHERE active = 1
    UNION ALL SELECT (SELECT min(chain.pool) FROM chain WHERE chain.active = 1 AND chain.pool > waited.pool)
    FROM waited WHERE waited.pool IS NOT NULL)
SELECT pool FROM waited WHERE pool IS NOT NULL;

-- name: select_runs
-- Runs of `default`, newest first. PostgreSQL has no index of these: each change of a run would enter it there.
SELECT run.*, session.worker FROM run INDEXED BY run_project LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.seq < :before_seq
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_project
-- Runs of a project that has an index everywhere: any but the one that most installations use alone.
SELECT run.*, session.worker FROM run INDEXED BY run_project LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.project <> 'default' AND run.seq < :before_seq
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_projects
-- Runs of some projects, or of all, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.seq < :before_seq AND (:any_project = 1 OR run.project = ANY(:projects))
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_job
-- Runs of a job, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.job_id = :job AND coalesce(run.project, '') = :project AND run.seq < :before_seq
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_backfill
-- Runs of a backfill, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.backfill = :backfill AND (:any_project = 1 OR run.project = ANY(:projects)) AND run.seq < :before_seq
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_of_cart
-- Runs of a cart, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.cart = :cart AND coalesce(run.project, '') = :project AND run.seq < :before_seq
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (:any_state = 1 OR run.state = ANY(:states))
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_active_runs
-- Runs of `default` that are not final, newest first.
SELECT run.*, session.worker FROM run INDEXED BY run_open LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.seq < :before_seq
    AND run.ended_at IS NULL AND coalesce(run.state, '') = ANY(:states)
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_active_runs_of_project
-- Runs of a project other than `default` that are not final, newest first. Their index tells them without a
-- look at those that have ended.
SELECT run.*, session.worker FROM run INDEXED BY run_open LEFT JOIN session ON session.id = run.session
WHERE run.project = :project AND run.project <> 'default' AND run.seq < :before_seq
    AND run.ended_at IS NULL AND coalesce(run.state, '') = ANY(:states)
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:job AS TEXT) IS NULL OR run.job_id = :job)
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_active_runs_of_projects
-- Runs of some projects, or of all, that are not final, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.seq IN (SELECT seq FROM active_run)
    AND (:any_project = 1 OR run.project = ANY(:projects)) AND run.seq + 0 < :before_seq AND run.state = ANY(:states)
    AND (:queued = 'anywhere' OR run.state <> 'QUEUED' OR (run.pool = ANY(:unserved)) = (:queued = 'unserved'))
    AND (CAST(:job_like AS TEXT) IS NULL OR lower(run.job) LIKE lower(:job_like) ESCAPE '\')
    AND (CAST(:trigger AS TEXT) IS NULL OR run.trigger = :trigger)
    AND (CAST(:since AS BIGINT) IS NULL OR run.created_at >= :since)
    AND (CAST(:until AS BIGINT) IS NULL OR run.created_at < :until)
    AND (CAST(:creator AS TEXT) IS NULL OR :creator = CASE WHEN run.trigger IN ('schedule', 'after')
        THEN (SELECT job.created_by FROM job WHERE job.id = run.job_id) ELSE run.created_by END)
ORDER BY run.seq DESC LIMIT :limit;

-- name: select_runs_by_id
-- These runs, newest first.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids) AND coalesce(run.project, '') = :project ORDER BY run.seq DESC;

-- name: select_runs_by_prefix
-- Runs whose id lies in a range.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id >= :id_from AND run.id < :id_to AND coalesce(run.project, '') = :project ORDER BY run.id LIMIT :limit;

-- name: select_runs_by_id_in_projects
-- These runs, if they are of some projects; or of any.
SELECT run.*, session.worker FROM run LEFT JOIN session ON session.id = run.session
WHERE run.id = ANY(:ids) AND (:any_project = 1 OR run.project = ANY(:projects)) ORDER BY run.seq DESC;

-- name: select_attempts
-- Attempts of a run that have ended and may be followed by another.
SELECT * FROM attempt WHERE run_id = :run ORDER BY number;

-- name: latest_attempt
-- The latest attempt of a run, in the words of `attempt`.
SELECT run.id AS run_id, attempt AS number, session, coalesce(worker, '') AS worker, result, claimed_at,
    started_at, ended_at, exit_code, signal, message, steps, cpu_seconds, max_memory, output_state,
    output_bytes, output_lines, truncated
FROM run LEFT JOIN session ON session.id = run.session WHERE run.id = :run AND attempt > 0;

-- name: select_late_results
-- Reports that were refused.
SELECT * FROM late_result WHERE run_id = :run ORDER BY received_at;

-- name: latest_delays
-- How late the runs of a job started that started last, in microseconds.
SELECT first_started_at - release_at AS delay
FROM (SELECT seq, first_started_at, release_at, backfill FROM run WHERE job_id = :job AND trigger <> 'probe'
    ORDER BY seq DESC LIMIT :looked_at) AS newest
WHERE first_started_at IS NOT NULL AND backfill IS NULL ORDER BY seq DESC LIMIT :limit;

-- name: runs_to_change
-- What decisions about these runs need, locked.
-- postgres: ORDER BY id FOR NO KEY UPDATE
SELECT id, seq, project, job_id, job, job_version, state, attempt, session, result, failures, losses, delivery,
    chain, capacity, expected, trigger, cancel_at, deadline_at, claimed_at, started_at, first_started_at,
    release_at, backfill, gate_job, cart, keys, shape, handle IS NOT NULL AS has_handle,
    (SELECT barred FROM session WHERE session.id = run.session) AS barred
FROM run WHERE id = ANY(:ids);

-- name: any_queued
-- One of these runs that waits for a worker.
SELECT id FROM run WHERE id = ANY(:ids) AND state = 'QUEUED' LIMIT 1;

-- name: runs_under_way
-- Those of these runs that a session has leased, unless it is barred.
SELECT run.id, run.attempt FROM run JOIN session ON session.id = run.session AND session.barred = 0
WHERE run.id = ANY(:ids) AND run.session = :session AND run.state IN ('CLAIMED', 'PROCESSING');

-- name: set_progress
-- How far a run is.
-- many: progress text, id text, attempt bigint, session text
UPDATE run SET progress = :progress
WHERE id = :id AND attempt = :attempt AND session = :session AND state IN ('CLAIMED', 'PROCESSING');

-- name: set_handle
-- What names its work in another system.
-- many: handle text, id text
UPDATE run SET handle = :handle WHERE id = :id;

-- name: hold_run
-- Somebody holds it. A time that had not come, as that of the next attempt, is still to be waited for.
UPDATE run SET state = 'BLOCKED', blocked_on = :key, reasons = :reasons,
    eligible_at = CASE WHEN state = 'SCHEDULED' THEN eligible_at END,
    gate_job = CASE WHEN trigger = 'schedule' THEN job_id END
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: set_priority
-- A run that waits is in another chain.
UPDATE run SET priority = :priority, chain = :chain
WHERE id = :id AND state IN ('SCHEDULED', 'BLOCKED', 'QUEUED');

-- name: select_events
-- Events past a position.
SELECT * FROM event WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: select_events_of
-- Events past a position that name one of these.
SELECT * FROM event WHERE seq > :after
    AND EXISTS (SELECT 1 FROM json_each(event.ids) AS named WHERE named.value = ANY(:ids))
ORDER BY seq LIMIT :limit;

-- name: select_events_in
-- Events of some projects past a position, or those of them that name one of these. Of each project no more are
-- read than are wanted, and of others none: CROSS JOIN keeps SQLite from going through the whole history.
SELECT event.* FROM json_each(:projects) AS wanted
CROSS JOIN event ON event.seq IN (SELECT mine.seq FROM event AS mine
    WHERE mine.project = wanted.value AND mine.seq > :after
        AND (:any_id = 1
            OR EXISTS (SELECT 1 FROM json_each(mine.ids) AS named WHERE named.value = ANY(:ids)))
    ORDER BY mine.seq LIMIT :limit)
ORDER BY event.seq LIMIT :limit;

-- name: first_of_latest_events_in
-- The oldest of the latest so many events of some projects, or of those of them that name one of these.
SELECT min(seq) AS seq FROM (
    SELECT event.seq FROM json_each(:projects) AS wanted
    CROSS JOIN event ON event.seq IN (SELECT mine.seq FROM event AS mine
        WHERE mine.project = wanted.value
            AND (:any_id = 1
                OR EXISTS (SELECT 1 FROM json_each(mine.ids) AS named WHERE named.value = ANY(:ids)))
        ORDER BY mine.seq DESC LIMIT :count)
    ORDER BY event.seq DESC LIMIT :count
) AS latest;

-- name: first_of_latest_events
-- The oldest of the latest so many events, or of those that name one of these.
SELECT min(seq) AS seq FROM (
    SELECT seq FROM event
    WHERE :any_id = 1
        OR EXISTS (SELECT 1 FROM json_each(event.ids) AS named WHERE named.value = ANY(:ids))
    ORDER BY seq DESC LIMIT :count
) AS latest;

-- name: select_names
-- How people call the jobs of these runs, and these jobs, carts and workers.
SELECT id, job AS name FROM run WHERE id = ANY(:ids)
UNION ALL SELECT id, name FROM job WHERE id = ANY(:ids)
UNION ALL SELECT id, name FROM cart WHERE id = ANY(:ids)
UNION ALL SELECT id, worker AS name FROM session WHERE id = ANY(:ids);

-- name: select_names_in
-- How people call the jobs of these runs, and these jobs and carts, as far as they are of some projects.
SELECT id, job AS name FROM run WHERE id = ANY(:ids) AND coalesce(project, '') = ANY(:projects)
UNION ALL SELECT id, name FROM job WHERE id = ANY(:ids) AND coalesce(project, '') = ANY(:projects)
UNION ALL SELECT id, name FROM cart WHERE id = ANY(:ids) AND coalesce(project, '') = ANY(:projects);

-- name: last_event
-- The end of the history.
-- postgres: WHERE tick < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
SELECT max(seq) AS seq FROM event;

-- name: count_active
-- What is not final, by state and pool.
SELECT state, pool, count(*) AS count FROM active_run GROUP BY state, pool;

-- name: oldest_queued
-- Since when the oldest run of each pool waits for a worker.
SELECT pool, min(queued_at) AS queued_at FROM run WHERE state = 'QUEUED' GROUP BY pool;

-- name: select_tallies
-- How many runs of each job ended in each state.
SELECT job, state, count FROM tally;

-- name: select_start_delays
-- How late runs had started.
SELECT pool, up_to, count, seconds FROM start_delay ORDER BY pool, up_to;

-- name: count_sessions
-- Workers by presence and pool.
SELECT pool, alive, count(*) AS count FROM session WHERE alive = 1 AND worker <> '' GROUP BY pool, alive;

-- name: set_meta
-- A fact about the store itself.
INSERT INTO meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: printing_fences
-- Attempts whose output a session may still send: those it holds, and ended ones that left some.
SELECT id, attempt FROM run
WHERE id = ANY(:ids) AND coalesce(session, '') = :session
    AND (state IN ('CLAIMED', 'PROCESSING') OR coalesce(output_state, '') = 'pending')
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1)
UNION SELECT run_id, number FROM attempt
WHERE run_id = ANY(:ids) AND coalesce(session, '') = :session
    AND coalesce(output_state, '') = 'pending'
    AND NOT EXISTS (SELECT 1 FROM session WHERE session.id = :session AND barred = 1);

-- name: insert_chunk
-- A chunk of output that is in the blob store.
-- many: run text, attempt integer, number integer, session text, first_line bigint, lines bigint,
-- many: bytes bigint, first_at bigint, last_at bigint, key text
INSERT INTO output_chunk (run_id, attempt, number, session, first_line, lines, bytes, first_at, last_at, key)
VALUES (:run, :attempt, :number, :session, :first_line, :lines, :bytes, :first_at, :last_at, :key)
ON CONFLICT DO NOTHING;

-- name: select_chunks
-- Where the output of an attempt lies, from the chunk on that has a line. Lines are counted over what
-- has arrived: `first_line` is the worker's own number, which counts lines that it dropped as well.
SELECT * FROM (
    SELECT output_chunk.*,
        CAST(sum(lines) OVER (ORDER BY number) - lines AS BIGINT) AS begins_at
    FROM output_chunk WHERE run_id = :run AND attempt = :attempt) AS placed
WHERE begins_at + lines > :from_line ORDER BY number LIMIT :limit;

-- name: sum_arrived
-- How much of the output of an attempt has arrived.
SELECT CAST(coalesce(sum(lines), 0) AS BIGINT) AS lines, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes
FROM output_chunk WHERE run_id = :run AND attempt = :attempt;

-- name: select_inline_output
-- Small output, kept beside its attempt.
SELECT output FROM attempt WHERE run_id = :run AND number = :attempt
UNION ALL SELECT output FROM run WHERE id = :run AND attempt = :attempt;

-- name: settle_run_output
-- The output of ended attempts has arrived up to its last line. What was cut on the way is told.
UPDATE run SET output_state = 'stored',
    output_bytes = (SELECT sum(bytes) FROM output_chunk WHERE run_id = run.id AND attempt = run.attempt),
    output_lines = (SELECT sum(lines) FROM output_chunk WHERE run_id = run.id AND attempt = run.attempt),
    truncated = CASE WHEN run.output_lines > (SELECT sum(lines) FROM output_chunk
        WHERE run_id = run.id AND attempt = run.attempt) THEN 1 ELSE run.truncated END
WHERE id = ANY(:ids) AND coalesce(output_state, '') = 'pending'
    AND output_lines <= (SELECT max(first_line + lines) FROM output_chunk
        WHERE run_id = run.id AND attempt = run.attempt);

-- name: settle_attempt_output
-- The same for attempts that were followed by another.
UPDATE attempt SET output_state = 'stored', output_bytes = arrived.bytes, output_lines = arrived.lines,
    truncated = CASE WHEN arrived.lines < attempt.output_lines THEN 1 ELSE attempt.truncated END
FROM (SELECT run_id, attempt AS number, sum(bytes) AS bytes, sum(lines) AS lines,
        max(first_line + lines) AS reached
    FROM output_chunk WHERE run_id = ANY(:ids) GROUP BY run_id, attempt) AS arrived
WHERE attempt.run_id = arrived.run_id AND attempt.number = arrived.number
    AND coalesce(attempt.output_state, '') = 'pending' AND arrived.reached >= attempt.output_lines;

-- name: tear_run_output
-- Nobody will send the rest of the output of these runs any more.
UPDATE run SET output_state = 'torn',
    output_bytes = (SELECT coalesce(sum(bytes), 0) FROM output_chunk
        WHERE run_id = run.id AND attempt = run.attempt),
    output_lines = (SELECT coalesce(sum(lines), 0) FROM output_chunk
        WHERE run_id = run.id AND attempt = run.attempt)
WHERE session = ANY(:sessions) AND output_state = 'pending';

-- name: tear_attempt_output
-- The same for attempts that were followed by another.
UPDATE attempt SET output_state = 'torn',
    output_bytes = (SELECT coalesce(sum(bytes), 0) FROM output_chunk
        WHERE output_chunk.run_id = attempt.run_id AND output_chunk.attempt = attempt.number),
    output_lines = (SELECT coalesce(sum(lines), 0) FROM output_chunk
        WHERE output_chunk.run_id = attempt.run_id AND output_chunk.attempt = attempt.number)
WHERE session = ANY(:sessions) AND output_state = 'pending';
