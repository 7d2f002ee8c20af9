-- name: drop_old_attempts
-- Forget logins that nobody finished in time.
DELETE FROM login_attempt WHERE expires_at <= :now;

-- name: insert_attempt
-- A login under way.
INSERT INTO login_attempt (state, browser, nonce, verifier, next, expires_at)
VALUES (:state, :browser, :nonce, :verifier, :next, :expires_at);

-- name: take_attempt
-- A login of this browser, which is gone from now on.
DELETE FROM login_attempt WHERE state = :state AND browser = :browser AND expires_at > :now
RETURNING nonce, verifier, next;

-- name: user_comes
-- A user whom somebody has named by their address is known by what the provider calls them.
UPDATE principal SET subject = :subject
WHERE kind = 'user' AND issuer = :issuer AND subject = :awaited AND issuer <> ''
RETURNING *;

-- name: rename_user
-- What the provider says of a user has changed.
UPDATE principal SET title = :title, email = :email WHERE handle = :handle;

-- name: roles_of_user
-- A user, in a row for each of their own roles, or one without a role.
SELECT principal.handle, principal.disabled_at, binding.scope, binding.role AS bound
FROM principal
LEFT JOIN binding ON binding.principal = principal.handle
    AND (binding.scope = '*' OR EXISTS (SELECT 1 FROM project
        WHERE project.name = binding.scope AND project.deleted_at IS NULL))
WHERE principal.kind = 'user' AND principal.issuer = :issuer AND principal.subject = :subject
    AND principal.issuer <> '';

-- name: groups_bound_by
-- Groups with a role in the installation that somebody gave them.
SELECT principal.handle, principal.issuer, principal.subject
FROM binding JOIN principal ON principal.handle = binding.principal
WHERE binding.scope = '*' AND binding.created_by = :by AND principal.kind = 'group';

-- name: insert_login
-- What the provider said when a session was opened.
INSERT INTO login_session
    (token, issuer, subject, sid, groups, refresh_token, id_token, refreshed_at, idle_until)
VALUES (:token, :issuer, :subject, :sid, :groups, :refresh_token, :id_token, :now, :idle_until);

-- name: set_groups
-- All sessions of a person know the groups that the provider told last.
UPDATE login_session SET groups = :groups
WHERE issuer = :issuer AND subject = :subject AND groups <> :groups RETURNING token;

-- name: remember_groups
-- The groups of a user by the provider's latest word.
-- many: groups text, issuer text, subject text
UPDATE principal SET groups = :groups WHERE issuer = :issuer AND subject = :subject AND kind = 'user';

-- name: drop_logins_without_token
-- Forget sessions whose token is forgotten.
DELETE FROM login_session WHERE NOT EXISTS (SELECT 1 FROM token WHERE token.id = login_session.token);

-- name: move_idle_end
-- A session of a browser was used.
UPDATE login_session SET idle_until = :until
WHERE token = :token AND EXISTS (SELECT 1 FROM token AS used WHERE used.id = :token AND used.kind = 'session');

-- name: move_terminal_end
-- A session of a terminal was used: it goes on, up to a time after it was opened.
UPDATE token
SET expires_at = CASE WHEN created_at + :most < :until THEN created_at + :most ELSE :until END
WHERE id = :token AND kind = 'terminal' AND revoked_at IS NULL;

-- name: take_refresh
-- Whoever changes this row may use the refresh token: used twice, the provider takes both for theft.
UPDATE login_session SET refreshing_until = :until
WHERE token = :token AND refresh_token IS NOT NULL AND refreshed_at <= :before
    AND (refreshing_until IS NULL OR refreshing_until <= :now)
RETURNING refresh_token;

-- name: save_refresh
-- What the provider said at a refresh; a token that it did not renew stays.
UPDATE login_session SET refreshed_at = :now, refreshing_until = NULL,
    refresh_token = coalesce(:refresh_token, refresh_token), id_token = coalesce(:id_token, id_token)
WHERE token = :token;

-- name: terminal
-- A session, if it is that of a terminal.
SELECT id FROM token WHERE id = :token AND kind = 'terminal';

-- name: refreshable_of_person
-- Sessions by which the provider can be asked about the person of this one. Those of browsers that have
-- expired serve on; who logs out, or is refused by the provider, takes theirs away.
SELECT theirs.token FROM login_session AS mine
JOIN login_session AS theirs ON theirs.issuer = mine.issuer AND theirs.subject = mine.subject
    AND theirs.refresh_token IS NOT NULL
JOIN token ON token.id = theirs.token AND token.revoked_at IS NULL
WHERE mine.token = :token ORDER BY theirs.refreshed_at DESC, theirs.token LIMIT 5;

-- name: postpone_refresh
-- A terminal for which nothing is to be asked now: not at each of its calls.
UPDATE login_session SET refreshing_until = :until WHERE token = :token;

-- name: vouch_for_terminals
-- The provider still knows the person of this session: their terminals go on from here.
UPDATE login_session SET refreshed_at = :now, refreshing_until = NULL,
    idle_until = :now + (SELECT expires_at - created_at FROM token WHERE token.id = :token)
WHERE issuer = (SELECT told.issuer FROM login_session AS told WHERE told.token = :token)
    AND subject = (SELECT told.subject FROM login_session AS told WHERE told.token = :token)
    AND EXISTS (SELECT 1 FROM token AS own WHERE own.id = login_session.token AND own.kind = 'terminal');

-- name: end_terminals
-- Terminals of the person of this session are let in no longer.
UPDATE token SET revoked_at = :now
WHERE kind = 'terminal' AND revoked_at IS NULL AND id IN (
    SELECT theirs.token FROM login_session AS mine
    JOIN login_session AS theirs ON theirs.issuer = mine.issuer AND theirs.subject = mine.subject
    WHERE mine.token = :token)
RETURNING id;

-- name: sealed_logins
-- Sessions with a value that does not begin as those of a key do.
SELECT token, refresh_token, id_token FROM login_session
WHERE token > :after
    AND (substr(refresh_token, 1, length(CAST(:current AS TEXT))) <> CAST(:current AS TEXT)
        OR substr(id_token, 1, length(CAST(:current AS TEXT))) <> CAST(:current AS TEXT))
ORDER BY token LIMIT :limit;

-- name: reseal_refresh_token
-- The same refresh token under another key.
-- many: new text, token text, old text
UPDATE login_session SET refresh_token = :new WHERE token = :token AND refresh_token = :old;

-- name: reseal_id_token
-- The same ID token under another key.
-- many: new text, token text, old text
UPDATE login_session SET id_token = :new WHERE token = :token AND id_token = :old;

-- name: keys_of_logins
-- How many values each key has sealed: the second part of each is the id of its key.
SELECT substr(rest, 1, instr(rest, ':') - 1) AS key_id, count(*) AS count
FROM (SELECT substr(refresh_token, 5) AS rest FROM login_session WHERE refresh_token IS NOT NULL
    UNION ALL SELECT substr(id_token, 5) FROM login_session WHERE id_token IS NOT NULL) AS sealed
GROUP BY 1 ORDER BY 1;

-- name: id_token_of
-- What the provider wants back at the logout.
SELECT issuer, id_token FROM login_session WHERE token = :token;

-- name: end_logins
-- The provider ended a session, or all of a user: those whose name for it is not known, too.
UPDATE token SET revoked_at = :now
WHERE revoked_at IS NULL AND id IN (
    SELECT login_session.token FROM login_session JOIN token AS own ON own.id = login_session.token
    WHERE login_session.issuer = :issuer AND own.created_at <= :at
        AND ((login_session.sid <> '' AND login_session.sid = :sid)
            OR (login_session.subject = :subject
                AND (:sid = '' OR (login_session.sid = '' AND own.kind = 'session')))))
RETURNING id;

-- name: drop_old_devices
-- Forget terminals that nobody let in in time.
DELETE FROM device_grant WHERE expires_at <= :now;

-- name: insert_device
-- A terminal that waits to be let in.
INSERT INTO device_grant (device, code, host, address, expires_at, asked_at, every, state)
VALUES (:device, :code, :host, :address, :expires_at, :asked_at, :every, 'pending');

-- name: device_by_code
-- A terminal that waits.
SELECT device, code, host, address FROM device_grant
WHERE code = :code AND state = 'pending' AND expires_at > :now;

-- name: decide_device
-- A person let a terminal in, or not.
UPDATE device_grant SET state = :state, session = :session
WHERE code = :code AND state = 'pending' AND expires_at > :now RETURNING device;

-- name: device_to_poll
-- A terminal that asks whether it was let in.
-- postgres: FOR UPDATE
SELECT * FROM device_grant WHERE device = :device;

-- name: note_poll
-- When a terminal has asked, and how long it has to wait until it may again.
UPDATE device_grant SET asked_at = :now, every = :every WHERE device = :device;

-- name: use_up_device
-- It was let in, once.
UPDATE device_grant SET state = 'used' WHERE device = :device;

-- name: open_session_of
-- The session in which a person let a terminal in, if it is still open.
SELECT token.* FROM token LEFT JOIN login_session ON login_session.token = token.id
WHERE token.id = :id AND token.kind = 'session' AND token.revoked_at IS NULL
    AND (token.expires_at IS NULL OR token.expires_at > :now)
    AND (login_session.token IS NULL OR login_session.idle_until > :now);

-- name: copy_login
-- The terminal's session is of the same person. What the provider said of them counts for as long as a
-- browser's session may last: see `vouch_for_terminals`. Who came by a link is nobody's to vouch for.
INSERT INTO login_session (token, issuer, subject, sid, groups, refreshed_at, idle_until)
SELECT :token, issuer, subject, '', groups, refreshed_at, CASE WHEN issuer = '' THEN CAST(:never AS BIGINT)
    ELSE refreshed_at + (SELECT expires_at - created_at FROM token WHERE token.id = login_session.token) END
FROM login_session WHERE token = :opener;
