-- Carts: ordered batches of runs. An item gets its run when it starts.

CREATE TABLE cart (
    id            TEXT COLLATE "C" PRIMARY KEY,
    project       TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    shard         INTEGER NOT NULL,
    document      TEXT NOT NULL, -- what it is about: job, rollback, priority, words for people
    rules         TEXT NOT NULL, -- which item may start, and when
    state         TEXT COLLATE "C" NOT NULL, -- LOADING: its items are still coming
    reason        TEXT COLLATE "C" NOT NULL DEFAULT '',
    ending        TEXT COLLATE "C", -- what it becomes once nothing is open; NULL: whatever comes
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
    wave_ended_at BIGINT, -- when the last item so far ended
    breach_wave   INTEGER, -- the current wave when a breach was last recorded
    check_run     TEXT COLLATE "C", -- of the gate before the next wave
    approved_by   TEXT COLLATE "C" NOT NULL DEFAULT '',
    look_at       BIGINT, -- when it may go on by itself; NULL: not by time alone
    created_by    TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT NOT NULL,
    starts_at     BIGINT, -- NULL: at once
    started_at    BIGINT,
    ended_at      BIGINT
);
CREATE UNIQUE INDEX cart_live ON cart (project, name) WHERE ended_at IS NULL AND state <> 'LOADING';
CREATE INDEX cart_look ON cart (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX cart_check ON cart (check_run) WHERE check_run IS NOT NULL;
CREATE INDEX cart_open ON cart (shard) WHERE open > 0;
CREATE INDEX cart_age ON cart (created_at, id);

CREATE TABLE cart_item (
    cart        TEXT COLLATE "C" NOT NULL,
    number      INTEGER NOT NULL, -- its place in the list, from 0
    key         TEXT COLLATE "C" NOT NULL,
    wave        INTEGER NOT NULL,
    job_id      TEXT COLLATE "C" NOT NULL,
    job_version INTEGER NOT NULL,
    inputs      TEXT,
    state       TEXT COLLATE "C" NOT NULL,
    run         TEXT COLLATE "C", -- its latest
    runs        INTEGER NOT NULL DEFAULT 0,
    cause       TEXT COLLATE "C" NOT NULL DEFAULT '', -- of a failure: its message without what differs
    PRIMARY KEY (cart, number)
);
CREATE UNIQUE INDEX cart_item_key ON cart_item (cart, key);
CREATE INDEX cart_item_state ON cart_item (cart, state, wave, number);
-- With all that the statements about open items read: else SQLite would go by the primary key.
CREATE INDEX cart_item_open ON cart_item (cart, state, run) WHERE state = 'OPEN';

ALTER TABLE run ADD COLUMN cart TEXT COLLATE "C";
ALTER TABLE run ADD COLUMN item TEXT COLLATE "C"; -- its key; NULL: of no cart, or the check of one
CREATE INDEX run_cart ON run (cart, seq) WHERE cart IS NOT NULL;

-- What carts are made of: the `carts` of applied files.
CREATE TABLE cart_template (
    project    TEXT COLLATE "C" NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    digest     TEXT COLLATE "C" NOT NULL,
    set_name   TEXT COLLATE "C" NOT NULL,
    shard      INTEGER NOT NULL,
    next_at    BIGINT, -- when it becomes a cart by itself; NULL: on demand only
    anchor     BIGINT NOT NULL,
    updated_by TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (project, name)
);
CREATE INDEX cart_template_due ON cart_template (next_at) WHERE next_at IS NOT NULL;
