-- Files that Rota keeps of projects: uploads, inputs of runs, artifacts. Their bytes are in the blob store.

CREATE TABLE file (
    id         TEXT COLLATE "C" PRIMARY KEY, -- of the upload: its blobs are below it
    project    TEXT COLLATE "C" NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    size       BIGINT NOT NULL, -- of what has come, or is reserved, while it is written
    state      TEXT COLLATE "C" NOT NULL, -- writing, kept, going
    made_at    BIGINT NOT NULL,
    keep_until BIGINT NOT NULL -- afterwards it goes, unless something refers to it
);
CREATE UNIQUE INDEX file_kept ON file (project, digest) WHERE state = 'kept';
CREATE INDEX file_expiry ON file (keep_until);

-- How many bytes a project has in them, those that are being written included.
CREATE TABLE file_sum (
    project TEXT COLLATE "C" PRIMARY KEY,
    bytes   BIGINT NOT NULL
);

CREATE TABLE artifact (
    run_id     TEXT COLLATE "C" NOT NULL,
    attempt    INTEGER NOT NULL,
    step       INTEGER NOT NULL,
    path       TEXT COLLATE "C" NOT NULL,
    project    TEXT COLLATE "C" NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    size       BIGINT NOT NULL,
    kept_at    BIGINT NOT NULL,
    keep_until BIGINT NOT NULL,
    PRIMARY KEY (run_id, attempt, step, path)
);
CREATE INDEX artifact_of_file ON artifact (project, digest);
CREATE INDEX artifact_expiry ON artifact (keep_until);
