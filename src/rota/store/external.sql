-- name: begun_external
-- What is needed of attempts of other systems that begin.
SELECT id, project, job_id, job_version, deadline_at FROM run WHERE id = ANY(:ids);

-- name: insert_external_attempt
-- An attempt of another system begins.
-- many: run text, attempt integer, look_at bigint, ends_at bigint, heartbeat bigint
INSERT INTO external_attempt (run_id, attempt, look_at, ends_at, heartbeat)
VALUES (:run, :attempt, :look_at, :ends_at, :heartbeat);

-- name: external_attempts
-- What is known of the latest attempts at these runs, which are locked with them.
SELECT external_attempt.* FROM external_attempt
JOIN run ON run.id = external_attempt.run_id AND run.attempt = external_attempt.attempt
WHERE external_attempt.run_id = ANY(:ids);

-- name: external_attempt
-- What is known of one attempt.
SELECT * FROM external_attempt WHERE run_id = :run AND attempt = :attempt;

-- name: any_external_due
-- Whether a look at silent attempts, announcements or runs that wait would find something.
SELECT EXISTS (SELECT 1 FROM external_attempt WHERE look_at <= :now) AS silent,
    EXISTS (SELECT 1 FROM announcement WHERE next_at <= :now) AS announcements,
    EXISTS (SELECT 1 FROM chain WHERE pool = :pool AND active = 1) AS waiting;

-- name: due_external
-- Attempts of which no report has come in time, or that somebody cancelled.
SELECT run_id AS id FROM external_attempt WHERE look_at <= :now ORDER BY look_at LIMIT :limit;

-- name: keep_report
-- A report was accepted, and the next one is due later.
-- many: look_at bigint, number bigint, digest text, chunks integer, lines bigint, bytes bigint,
-- many: truncated integer, run text, attempt integer
UPDATE external_attempt SET look_at = :look_at, number = :number, digest = :digest, chunks = :chunks,
    lines = :lines, bytes = :bytes, truncated = :truncated
WHERE run_id = :run AND attempt = :attempt;

-- name: known_progress
-- How far a run is, as was told last.
SELECT progress FROM run WHERE id = :run;

-- name: close_external
-- These attempts are over, or were never those of other systems.
UPDATE external_attempt SET look_at = NULL WHERE run_id = ANY(:ids) AND look_at IS NOT NULL;

-- name: insert_announcement
-- Another system is to be told; what was written before stays.
-- many: id text, told text, run text, attempt integer, now bigint
INSERT INTO announcement (id, told, run_id, attempt, made_at, next_at)
VALUES (:id, :told, :run, :attempt, :now, :now) ON CONFLICT DO NOTHING;

-- name: lease_announcements
-- Announcements that are due, left to one server until then.
UPDATE announcement SET next_at = :until, tries = tries + 1
WHERE id IN (SELECT id FROM announcement WHERE next_at <= :now ORDER BY next_at LIMIT :limit)
RETURNING id, told, run_id, attempt, made_at, tries;

-- name: announced_runs
-- What these runs tell other systems, and whether their attempts go on.
SELECT run.id, run.project, run.job, run.job_id, run.job_version, run.due_at, run.inputs, run.attempt, run.state,
    external_attempt.ends_at, external_attempt.heartbeat
FROM run JOIN external_attempt ON external_attempt.run_id = run.id AND external_attempt.attempt = run.attempt
WHERE run.id = ANY(:ids);

-- name: settle_announcements
-- How tries to tell other systems went.
-- many: next_at bigint, sent_at bigint, error text, id text
UPDATE announcement SET next_at = :next_at, sent_at = :sent_at, error = :error WHERE id = :id;

-- name: announcements_of
-- What another system was told of an attempt, or will be.
SELECT * FROM announcement WHERE run_id = :run AND attempt = :attempt ORDER BY made_at, id;

-- name: insert_report_token
-- By which another system may report on an attempt.
-- many: digest text, run text, attempt integer, now bigint
INSERT INTO report_token (digest, run_id, attempt, made_at) VALUES (:digest, :run, :attempt, :now);

-- name: report_token
-- The attempt that a token is for, also of one that has ended.
SELECT report_token.run_id, report_token.attempt, run.project
FROM report_token JOIN run ON run.id = report_token.run_id WHERE report_token.digest = :digest;

-- name: forget_report_tokens
-- Tokens of attempts that nobody reports on any more.
DELETE FROM report_token WHERE digest IN (SELECT report_token.digest FROM report_token
    JOIN external_attempt ON external_attempt.run_id = report_token.run_id
        AND external_attempt.attempt = report_token.attempt
    WHERE report_token.made_at < :before AND external_attempt.look_at IS NULL LIMIT :limit)
RETURNING digest;
