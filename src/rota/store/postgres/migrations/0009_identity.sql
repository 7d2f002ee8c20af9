-- Whose it is: projects, principals and what they may do; how people log in, and workers join.

-- Tenants. A name is never given twice, not even after its project was deleted.
CREATE TABLE project (
    name       TEXT COLLATE "C" PRIMARY KEY,
    title      TEXT NOT NULL,
    defaults   TEXT NOT NULL, -- JSON: fields of jobs that do not set them
    policy     TEXT NOT NULL, -- JSON: what its jobs may ask for at the most
    bounds     TEXT NOT NULL DEFAULT '', -- JSON: the policy and pools of others, as gates read them; '': none
    version    INTEGER NOT NULL, -- grows with each change: the entity tag
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_by TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
);
-- Gates look here for each job: most projects are not bounded, and cost nothing.
CREATE INDEX project_bounded ON project (name) WHERE bounds <> '';

-- Whoever can act. The handle is what jobs, runs and events name; it is never given twice.
CREATE TABLE principal (
    handle      TEXT COLLATE "C" PRIMARY KEY,
    kind        TEXT COLLATE "C" NOT NULL, -- user, service, group, worker, system
    issuer      TEXT COLLATE "C" NOT NULL, -- of users and groups: who vouches for them; '': we do
    subject     TEXT COLLATE "C" NOT NULL, -- what the issuer calls it: `sub` of a user, name of a group
    title       TEXT NOT NULL, -- how people call it
    email       TEXT COLLATE "C" NOT NULL, -- of a user, verified by the issuer; '': none
    created_by  TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT NOT NULL,
    disabled_at BIGINT -- it may do nothing from then on
);
CREATE UNIQUE INDEX principal_subject ON principal (kind, issuer, subject) WHERE issuer <> '';

-- Roles: what a principal may do in a project, or in all of them and with the installation (`*`).
CREATE TABLE binding (
    principal  TEXT COLLATE "C" NOT NULL,
    scope      TEXT COLLATE "C" NOT NULL,
    role       TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (principal, scope)
);
CREATE INDEX binding_scope ON binding (scope);

-- A token acts for its principal, in one project or wherever that may, with no more than its role.
ALTER TABLE token ADD COLUMN principal TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN project TEXT COLLATE "C"; -- NULL: not bound to one
ALTER TABLE token ADD COLUMN verbs TEXT; -- JSON: all that it may do; NULL: what the role allows
ALTER TABLE token ADD COLUMN shown TEXT COLLATE "C" NOT NULL DEFAULT ''; -- the beginning of its secret
ALTER TABLE token ADD COLUMN uses_left INTEGER; -- of one that lets workers join; NULL: any number
CREATE INDEX token_principal ON token (principal);

-- The credential of a worker that joined is renewed in place: a second secret stands beside the first
-- until it is used. A worker's session knows by which credential it was opened, and ends with it.
ALTER TABLE token ADD COLUMN lifetime BIGINT; -- microseconds that a renewal gives; NULL: it is not renewed
ALTER TABLE token ADD COLUMN next_digest TEXT COLLATE "C"; -- of the secret that takes the place of this one
ALTER TABLE token ADD COLUMN next_expires_at BIGINT;
CREATE UNIQUE INDEX token_next ON token (next_digest) WHERE next_digest IS NOT NULL;
CREATE INDEX token_worker ON token (name) WHERE kind = 'worker' AND revoked_at IS NULL;
ALTER TABLE session ADD COLUMN credential TEXT COLLATE "C"; -- id of a token; NULL: it came by the local socket
ALTER TABLE session ADD COLUMN barred INTEGER NOT NULL DEFAULT 0; -- its credential was revoked

-- What the provider said of a person when they logged in, for as long as the session lasts.
CREATE TABLE login_session (
    token            TEXT COLLATE "C" PRIMARY KEY, -- id of the token, whose kind is session or terminal
    issuer           TEXT COLLATE "C" NOT NULL,
    subject          TEXT COLLATE "C" NOT NULL,
    sid              TEXT COLLATE "C" NOT NULL, -- what the provider calls the session; '': it does not tell
    groups           TEXT NOT NULL, -- JSON: names of groups, as of the latest refresh
    refresh_token    TEXT, -- sealed with the key ring; NULL: none is kept
    id_token         TEXT, -- sealed, too: the provider wants it back at the logout
    refreshed_at     BIGINT NOT NULL,
    refreshing_until BIGINT, -- a server is asking the provider until then; NULL: none is
    idle_until       BIGINT NOT NULL -- it ends then unless it is used; moved on at most once a minute
);
CREATE INDEX login_session_subject ON login_session (issuer, subject);
CREATE INDEX login_session_sid ON login_session (issuer, sid) WHERE sid <> '';

-- Logins under way: each ends once, on any server, in the browser that began it.
CREATE TABLE login_attempt (
    state      TEXT COLLATE "C" PRIMARY KEY, -- digest of what travels through the provider
    browser    TEXT COLLATE "C" NOT NULL, -- digest of what the browser keeps
    nonce      TEXT COLLATE "C" NOT NULL,
    verifier   TEXT COLLATE "C" NOT NULL, -- of PKCE
    next       TEXT COLLATE "C" NOT NULL, -- path where the person goes on
    expires_at BIGINT NOT NULL
);
CREATE INDEX login_attempt_expires ON login_attempt (expires_at);

-- Terminals that wait for a person to let them in.
CREATE TABLE device_grant (
    device     TEXT COLLATE "C" PRIMARY KEY, -- digest of what the terminal keeps
    code       TEXT COLLATE "C" NOT NULL UNIQUE, -- what the person types
    host       TEXT COLLATE "C" NOT NULL, -- what the terminal calls its machine
    address    TEXT COLLATE "C" NOT NULL, -- where it asked from
    expires_at BIGINT NOT NULL,
    asked_at   BIGINT NOT NULL, -- the latest poll
    every      BIGINT NOT NULL, -- microseconds that it has to wait between polls
    state      TEXT COLLATE "C" NOT NULL, -- pending, approved, denied, used
    session    TEXT COLLATE "C" -- token of the session in which a person approved it
);
CREATE INDEX device_grant_expires ON device_grant (expires_at);

-- Pools that only these projects may use. A pool without a row is for all.
CREATE TABLE pool_project (
    pool    TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (pool, project)
);
CREATE INDEX pool_project_project ON pool_project (project);

-- What a project has seen, and what somebody made. An index of all runs would cost every claim and every
-- end an entry; those of the project `default` are found by age, as in a store without other projects.
CREATE INDEX event_project ON event (project, seq);
CREATE INDEX run_project ON run (project, seq, ended_at) WHERE project <> 'default';
CREATE INDEX job_creator ON job (created_by, project) WHERE deleted_at IS NULL;
CREATE INDEX cart_creator ON cart (created_by, created_at);
CREATE INDEX cart_project ON cart (project, created_at, id);

-- All that is there goes on: projects and names that are in use become rows, and tokens keep their
-- role everywhere. Names of several tokens get the highest of their roles, and each token its own;
-- those that were revoked or have expired give none.
INSERT INTO project (name, title, defaults, policy, bounds, version, created_by, created_at, updated_by, updated_at)
SELECT DISTINCT name, '', '{}', '{}', '', 1, 'migration', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'migration', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM (SELECT 'default' AS name UNION SELECT project FROM job UNION SELECT project FROM cart
    UNION SELECT project FROM cart_template UNION SELECT project FROM calendar
    UNION SELECT project FROM declaration) AS used;

INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
SELECT name, CASE WHEN max(is_worker) = 1 AND min(is_worker) = 1 THEN 'worker' ELSE 'service' END,
    '', '', '', '', 'migration', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM (SELECT name, CASE WHEN kind = 'worker' THEN 1 ELSE 0 END AS is_worker FROM token
    UNION SELECT created_by, 0 FROM job UNION SELECT created_by, 0 FROM run
    UNION SELECT created_by, 0 FROM cart) AS named
WHERE name <> '' GROUP BY name;

UPDATE token SET principal = name;

INSERT INTO binding (principal, scope, role, created_by, created_at)
SELECT name, '*', CASE max(CASE role WHEN 'admin' THEN 4 WHEN 'editor' THEN 3 WHEN 'operator' THEN 2 ELSE 1 END)
    WHEN 4 THEN 'admin' WHEN 3 THEN 'editor' WHEN 2 THEN 'operator' ELSE 'viewer' END, 'migration', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM token
WHERE kind <> 'worker' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
GROUP BY name;
