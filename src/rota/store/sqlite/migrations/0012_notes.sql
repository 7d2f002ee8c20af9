-- How attempts stand that go on, as their workers tell: hints, replaced by what is told next. Of attempts
-- that are over nobody reads them; they are deleted now and then.
CREATE TABLE run_note (
    run_id       TEXT PRIMARY KEY,
    attempt      INTEGER NOT NULL,
    told_at      INTEGER NOT NULL,
    first_step   INTEGER NOT NULL, -- number of the first one of `steps`
    steps        TEXT NOT NULL, -- JSON: the latest that have begun
    output_lines INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    last_line    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
