-- How attempts stand that go on, as their workers tell: hints, replaced by what is told next. Of attempts
-- that are over nobody reads them; they are deleted now and then.
-- Without a log: what a crash takes is told again within a minute.
CREATE UNLOGGED TABLE run_note (
    run_id       TEXT COLLATE "C" PRIMARY KEY,
    attempt      INTEGER NOT NULL,
    told_at      BIGINT NOT NULL,
    first_step   INTEGER NOT NULL, -- number of the first one of `steps`
    steps        TEXT NOT NULL, -- JSON: the latest that have begun
    output_lines BIGINT NOT NULL,
    output_bytes BIGINT NOT NULL,
    last_line    TEXT NOT NULL
) WITH (fillfactor = 50);
