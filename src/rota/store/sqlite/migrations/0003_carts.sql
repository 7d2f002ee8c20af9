-- Carts: ordered batches of runs. An item gets its run when it starts.

CREATE TABLE cart (
    id            TEXT PRIMARY KEY,
    project       TEXT NOT NULL,
    name          TEXT NOT NULL,
    shard         INTEGER NOT NULL,
    document      TEXT NOT NULL, -- what it is about: job, rollback, priority, words for people
    rules         TEXT NOT NULL, -- which item may start, and when
    state         TEXT NOT NULL, -- LOADING: its items are still coming
    reason        TEXT NOT NULL DEFAULT '',
    ending        TEXT, -- what it becomes once nothing is open; NULL: whatever comes
    version       INTEGER NOT NULL DEFAULT 1, -- grows with all that people do to it
    items         INTEGER NOT NULL,
    open          INTEGER NOT NULL DEFAULT 0, -- items by state; the others are pending
    completed     INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    cancelled     INTEGER NOT NULL DEFAULT 0,
    skipped       INTEGER NOT NULL DEFAULT 0,
    wave          INTEGER NOT NULL DEFAULT 0, -- the highest that was ever opened
    current_wave  INTEGER NOT NULL DEFAULT 0,
    wave_items    INTEGER NOT NULL DEFAULT 0, -- of the current one
    wave_failed   INTEGER NOT NULL DEFAULT 0,
    wave_ended_at INTEGER, -- when the last item so far ended
    breach_wave   INTEGER, -- the current wave when a breach was last recorded
    check_run     TEXT, -- of the gate before the next wave
    approved_by   TEXT NOT NULL DEFAULT '',
    look_at       INTEGER, -- when it may go on by itself; NULL: not by time alone
    created_by    TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    starts_at     INTEGER, -- NULL: at once
    started_at    INTEGER,
    ended_at      INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX cart_live ON cart (project, name) WHERE ended_at IS NULL AND state <> 'LOADING';
CREATE INDEX cart_look ON cart (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX cart_check ON cart (check_run) WHERE check_run IS NOT NULL;
CREATE INDEX cart_open ON cart (shard) WHERE open > 0;
CREATE INDEX cart_age ON cart (created_at, id);

CREATE TABLE cart_item (
    cart        TEXT NOT NULL,
    number      INTEGER NOT NULL, -- its place in the list, from 0
    key         TEXT NOT NULL,
    wave        INTEGER NOT NULL,
    job_id      TEXT NOT NULL,
    job_version INTEGER NOT NULL,
    inputs      TEXT,
    state       TEXT NOT NULL,
    run         TEXT, -- its latest
    runs        INTEGER NOT NULL DEFAULT 0,
    cause       TEXT NOT NULL DEFAULT '', -- of a failure: its message without what differs
    PRIMARY KEY (cart, number)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX cart_item_key ON cart_item (cart, key);
CREATE INDEX cart_item_state ON cart_item (cart, state, wave, number);
-- With all that the statements about open items read: else SQLite would go by the primary key.
CREATE INDEX cart_item_open ON cart_item (cart, state, run) WHERE state = 'OPEN';

ALTER TABLE run ADD COLUMN cart TEXT;
ALTER TABLE run ADD COLUMN item TEXT; -- its key; NULL: of no cart, or the check of one
CREATE INDEX run_cart ON run (cart, seq) WHERE cart IS NOT NULL;

-- What carts are made of: the `carts` of applied files.
CREATE TABLE cart_template (
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    set_name   TEXT NOT NULL,
    shard      INTEGER NOT NULL,
    next_at    INTEGER, -- when it becomes a cart by itself; NULL: on demand only
    anchor     INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX cart_template_due ON cart_template (next_at) WHERE next_at IS NOT NULL;
