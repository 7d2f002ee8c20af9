PRAGMA user_version = 7;
BEGIN TRANSACTION;
CREATE TABLE attempt (
    run_id       TEXT NOT NULL,
    number       INTEGER NOT NULL,
    session      TEXT NOT NULL,
    worker       TEXT NOT NULL,
    result       TEXT NOT NULL,
    claimed_at   INTEGER NOT NULL,
    started_at   INTEGER,
    ended_at     INTEGER NOT NULL,
    exit_code    INTEGER,
    signal       INTEGER,
    message      TEXT NOT NULL,
    steps        TEXT,
    cpu_seconds  REAL NOT NULL,
    max_memory   INTEGER NOT NULL,
    output       BLOB,
    output_state TEXT NOT NULL,
    output_bytes INTEGER NOT NULL,
    output_lines INTEGER NOT NULL,
    truncated    INTEGER NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE backfill (
    id           TEXT PRIMARY KEY,
    job_id       TEXT NOT NULL,
    max_parallel INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    runs         INTEGER NOT NULL,
    first        INTEGER, 
    last         INTEGER,
    skipped      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE calendar (
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    document   TEXT NOT NULL,
    version    INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "calendar" VALUES('default','nights','{"name":"nights","windows":["daily 22:00-06:00"],"timezone":"UTC","holidays":null,"inside":"skip"}',1,'admin',1767268800000000);
INSERT INTO "calendar" VALUES('etl','nights','{"name":"nights","windows":["daily 22:00-06:00"],"timezone":"UTC","holidays":null,"inside":"skip"}',1,'admin',1767268800000000);
INSERT INTO "calendar" VALUES('web','nights','{"name":"nights","windows":["daily 22:00-06:00"],"timezone":"UTC","holidays":null,"inside":"skip"}',1,'admin',1767268800000000);
CREATE TABLE calendar_use (
    job_id   TEXT NOT NULL,
    calendar TEXT NOT NULL,
    project  TEXT NOT NULL,
    PRIMARY KEY (job_id, calendar)
) STRICT, WITHOUT ROWID;
INSERT INTO "calendar_use" VALUES('j_rhrb41j7e448','nights','default');
INSERT INTO "calendar_use" VALUES('j_q4t3zp97whfm','nights','etl');
INSERT INTO "calendar_use" VALUES('j_fe3xcqbreyqz','nights','web');
CREATE TABLE cart (
    id            TEXT PRIMARY KEY,
    project       TEXT NOT NULL,
    name          TEXT NOT NULL,
    shard         INTEGER NOT NULL,
    document      TEXT NOT NULL, 
    rules         TEXT NOT NULL, 
    state         TEXT NOT NULL, 
    reason        TEXT NOT NULL DEFAULT '',
    ending        TEXT, 
    version       INTEGER NOT NULL DEFAULT 1, 
    items         INTEGER NOT NULL,
    open          INTEGER NOT NULL DEFAULT 0, 
    completed     INTEGER NOT NULL DEFAULT 0,
    failed        INTEGER NOT NULL DEFAULT 0,
    cancelled     INTEGER NOT NULL DEFAULT 0,
    skipped       INTEGER NOT NULL DEFAULT 0,
    wave          INTEGER NOT NULL DEFAULT 0, 
    current_wave  INTEGER NOT NULL DEFAULT 0,
    wave_items    INTEGER NOT NULL DEFAULT 0, 
    wave_failed   INTEGER NOT NULL DEFAULT 0,
    wave_ended_at INTEGER, 
    breach_wave   INTEGER, 
    check_run     TEXT, 
    approved_by   TEXT NOT NULL DEFAULT '',
    look_at       INTEGER, 
    created_by    TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    starts_at     INTEGER, 
    started_at    INTEGER,
    ended_at      INTEGER
) STRICT, WITHOUT ROWID;
INSERT INTO "cart" VALUES('c_9n66gpqvac8y','default','rollout',205,'{"job":"tidy","description":"","labels":{},"rollback":"","priority":null}','{"order":"serial","group_size":[],"max_parallel":1,"failures":{"allow":"0","of":"cart","then":"pause","strict":false},"between":{"wait":"0s","check":"","approve":""},"calendars":[]}','PLANNED','',NULL,1,3,0,0,0,0,0,0,0,0,0,NULL,NULL,NULL,'',1767268800000000,'admin',1767268800000000,NULL,NULL,NULL);
INSERT INTO "cart" VALUES('c_kkdbwcqc5k9s','etl','rollout',43,'{"job":"tidy","description":"","labels":{},"rollback":"","priority":null}','{"order":"serial","group_size":[],"max_parallel":1,"failures":{"allow":"0","of":"cart","then":"pause","strict":false},"between":{"wait":"0s","check":"","approve":""},"calendars":[]}','PLANNED','',NULL,1,3,0,0,0,0,0,0,0,0,0,NULL,NULL,NULL,'',1767268800000000,'admin',1767268800000000,NULL,NULL,NULL);
INSERT INTO "cart" VALUES('c_kq296fr073gz','web','rollout',92,'{"job":"tidy","description":"","labels":{},"rollback":"","priority":null}','{"order":"serial","group_size":[],"max_parallel":1,"failures":{"allow":"0","of":"cart","then":"pause","strict":false},"between":{"wait":"0s","check":"","approve":""},"calendars":[]}','PLANNED','',NULL,1,3,0,0,0,0,0,0,0,0,0,NULL,NULL,NULL,'',1767268800000000,'admin',1767268800000000,NULL,NULL,NULL);
CREATE TABLE cart_item (
    cart        TEXT NOT NULL,
    number      INTEGER NOT NULL, 
    key         TEXT NOT NULL,
    wave        INTEGER NOT NULL,
    job_id      TEXT NOT NULL,
    job_version INTEGER NOT NULL,
    inputs      TEXT,
    state       TEXT NOT NULL,
    run         TEXT, 
    runs        INTEGER NOT NULL DEFAULT 0,
    cause       TEXT NOT NULL DEFAULT '', 
    PRIMARY KEY (cart, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "cart_item" VALUES('c_9n66gpqvac8y',0,'a',1,'j_zsaec473m0td',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_9n66gpqvac8y',1,'b',2,'j_zsaec473m0td',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_9n66gpqvac8y',2,'c',3,'j_zsaec473m0td',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_kkdbwcqc5k9s',0,'a',1,'j_nnwenj0g17ft',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_kkdbwcqc5k9s',1,'b',2,'j_nnwenj0g17ft',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_kkdbwcqc5k9s',2,'c',3,'j_nnwenj0g17ft',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_kq296fr073gz',0,'a',1,'j_983xqwcgzjfn',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_kq296fr073gz',1,'b',2,'j_983xqwcgzjfn',1,NULL,'PENDING',NULL,0,'');
INSERT INTO "cart_item" VALUES('c_kq296fr073gz',2,'c',3,'j_983xqwcgzjfn',1,NULL,'PENDING',NULL,0,'');
CREATE TABLE cart_template (
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    set_name   TEXT NOT NULL,
    shard      INTEGER NOT NULL,
    next_at    INTEGER, 
    anchor     INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "cart_template" VALUES('default','fleet',1,'{"name":"fleet","job":"tidy","items":[{"key":"a"}]}','cf0049bda37a36ef','all',5,NULL,1767268800000000,'admin',1767268800000000);
INSERT INTO "cart_template" VALUES('etl','fleet',1,'{"name":"fleet","job":"tidy","items":[{"key":"a"}]}','cf0049bda37a36ef','all',5,NULL,1767268800000000,'admin',1767268800000000);
INSERT INTO "cart_template" VALUES('web','fleet',1,'{"name":"fleet","job":"tidy","items":[{"key":"a"}]}','cf0049bda37a36ef','all',100,NULL,1767268800000000,'admin',1767268800000000);
CREATE TABLE chain (
    id       TEXT PRIMARY KEY,
    pool     TEXT NOT NULL,
    priority INTEGER NOT NULL,
    share    TEXT NOT NULL,
    weight   REAL NOT NULL DEFAULT 1,
    tag      REAL NOT NULL,
    active   INTEGER NOT NULL
, group_weight REAL NOT NULL DEFAULT 1) STRICT, WITHOUT ROWID;
INSERT INTO "chain" VALUES('default/5/default/admin','default',5,'default/admin',1.0,8.99999999999967395091e-05,1,1.0);
INSERT INTO "chain" VALUES('default/5/etl/admin','default',5,'etl/admin',1.0,8.99999999999967395091e-05,1,1.0);
INSERT INTO "chain" VALUES('default/5/web/admin','default',5,'web/admin',1.0,8.99999999999967395091e-05,1,1.0);
INSERT INTO "chain" VALUES('gpu/5/default/admin','gpu',5,'default/admin',1.0,0.0,1,1.0);
INSERT INTO "chain" VALUES('gpu/5/etl/admin','gpu',5,'etl/admin',1.0,0.0,1,1.0);
INSERT INTO "chain" VALUES('gpu/5/web/admin','gpu',5,'web/admin',1.0,0.0,1,1.0);
CREATE TABLE completion (
    project TEXT NOT NULL,
    job     TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (project, job)
);
CREATE TABLE declaration (
    kind       TEXT NOT NULL,
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    document   TEXT NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, project, name)
);
INSERT INTO "declaration" VALUES('rate','default','calls','{"project":"default","name":"calls","tokens":5,"per":"PT60S","burst":5,"each":""}','admin',1767268800000000);
INSERT INTO "declaration" VALUES('resource','default','license','{"project":"default","name":"license","total":2,"sharing":"counted"}','admin',1767268800000000);
INSERT INTO "declaration" VALUES('rate','etl','calls','{"project":"etl","name":"calls","tokens":5,"per":"PT60S","burst":5,"each":""}','admin',1767268800000000);
INSERT INTO "declaration" VALUES('resource','etl','license','{"project":"etl","name":"license","total":2,"sharing":"counted"}','admin',1767268800000000);
INSERT INTO "declaration" VALUES('rate','web','calls','{"project":"web","name":"calls","tokens":5,"per":"PT60S","burst":5,"each":""}','admin',1767268800000000);
INSERT INTO "declaration" VALUES('resource','web','license','{"project":"web","name":"license","total":2,"sharing":"counted"}','admin',1767268800000000);
CREATE TABLE dependency (
    job_id   TEXT NOT NULL,
    project  TEXT NOT NULL,
    upstream TEXT NOT NULL,
    PRIMARY KEY (job_id, upstream)
);
INSERT INTO "dependency" VALUES('j_j8zk353q5636','default','nightly');
INSERT INTO "dependency" VALUES('j_ag5xtmmq88ew','etl','nightly');
INSERT INTO "dependency" VALUES('j_2v4s1cq95ndx','web','nightly');
CREATE TABLE drained_worker (
    name       TEXT PRIMARY KEY,
    drained_by TEXT NOT NULL,
    drained_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE event (
    seq     INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    project TEXT NOT NULL,
    ids     TEXT NOT NULL,
    data    TEXT NOT NULL
) STRICT;
INSERT INTO "event" VALUES(1,'token.created',1767268800000000,'test','','["t_d5d255193b25"]','{"kind":"api"}');
INSERT INTO "event" VALUES(2,'token.created',1767268800000000,'test','','["t_533f10d6f9b2"]','{"kind":"api"}');
INSERT INTO "event" VALUES(3,'token.created',1767268800000000,'test','','["t_d587d0bcb836"]','{"kind":"api"}');
INSERT INTO "event" VALUES(4,'token.created',1767268800000000,'test','','["t_8a00fe2415c9"]','{"kind":"api"}');
INSERT INTO "event" VALUES(5,'token.created',1767268800000000,'test','','["t_e327278b0d3c"]','{"kind":"api"}');
INSERT INTO "event" VALUES(6,'token.created',1767268800000000,'test','','["t_3f350c25eb37"]','{"kind":"worker"}');
INSERT INTO "event" VALUES(7,'token.created',1767268800000000,'test','','["t_b27a555cf4bc"]','{"kind":"api"}');
INSERT INTO "event" VALUES(8,'token.revoked',1767268800000000,'test','','["t_b27a555cf4bc"]','{}');
INSERT INTO "event" VALUES(9,'token.created',1767268800000000,'editor','','["t_cd3e3d2b3fd8"]','{"kind":"session"}');
INSERT INTO "event" VALUES(10,'token.created',1767268800000000,'test','','["t_657b23f5449a"]','{"kind":"login"}');
INSERT INTO "event" VALUES(11,'worker.registered',1767268800000000,'node','','["w_21ptvt5541gc"]','{"pool":"default"}');
INSERT INTO "event" VALUES(12,'cart.defined',1767268800000000,'admin','','["fleet"]','{}');
INSERT INTO "event" VALUES(13,'calendar.created',1767268800000000,'admin','default','["nights"]','{}');
INSERT INTO "event" VALUES(14,'limit.saved',1767268800000000,'admin','default','[]','{"name":"calls"}');
INSERT INTO "event" VALUES(15,'resource.saved',1767268800000000,'admin','default','[]','{"name":"license"}');
INSERT INTO "event" VALUES(16,'job.created',1767268800000000,'admin','','["j_va2zs63w9yaa","j_kfsn7ftn788t","j_ncenm8qmjkqk","j_rhrb41j7e448","j_fq3f1dnytjv9","j_j8zk353q5636","j_zsaec473m0td"]','{}');
INSERT INTO "event" VALUES(17,'job.deleted',1767268800000000,'admin','','["j_va2zs63w9yaa"]','{"names":["dropped"]}');
INSERT INTO "event" VALUES(18,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw007mw81e0ns0936"]','{}');
INSERT INTO "event" VALUES(19,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw005adwb23g77pty"]','{}');
INSERT INTO "event" VALUES(20,'run.claimed',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw007mw81e0ns0936","r_1j7a9agqw005adwb23g77pty"]','{}');
INSERT INTO "event" VALUES(21,'run.started',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw007mw81e0ns0936","r_1j7a9agqw005adwb23g77pty"]','{}');
INSERT INTO "event" VALUES(22,'run.finished',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw007mw81e0ns0936"]','{"state":"COMPLETED","cause":"","attempts":[1]}');
INSERT INTO "event" VALUES(23,'run.finished',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw005adwb23g77pty"]','{"state":"FAILED","cause":"exit 1","attempts":[1]}');
INSERT INTO "event" VALUES(24,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00dxn0yqhfb0mtt"]','{}');
INSERT INTO "event" VALUES(25,'run.claimed',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00dxn0yqhfb0mtt"]','{}');
INSERT INTO "event" VALUES(26,'run.started',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00dxn0yqhfb0mtt"]','{}');
INSERT INTO "event" VALUES(27,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00av6frzqdpqxtk"]','{}');
INSERT INTO "event" VALUES(28,'cart.submitted',1767268800000000,'admin','','["c_9n66gpqvac8y"]','{"name":"rollout","items":3}');
INSERT INTO "event" VALUES(29,'cart.defined',1767268800000000,'admin','','["fleet"]','{}');
INSERT INTO "event" VALUES(30,'calendar.created',1767268800000000,'admin','etl','["nights"]','{}');
INSERT INTO "event" VALUES(31,'limit.saved',1767268800000000,'admin','etl','[]','{"name":"calls"}');
INSERT INTO "event" VALUES(32,'resource.saved',1767268800000000,'admin','etl','[]','{"name":"license"}');
INSERT INTO "event" VALUES(33,'share.weighted',1767268800000000,'admin','','["etl"]','{"weight":1.0}');
INSERT INTO "event" VALUES(34,'job.created',1767268800000000,'admin','','["j_q3nfrb0jrfn3","j_m652k07dmpda","j_79mxe4dh7dyb","j_q4t3zp97whfm","j_h371sa2t3cf1","j_ag5xtmmq88ew","j_nnwenj0g17ft"]','{}');
INSERT INTO "event" VALUES(35,'job.deleted',1767268800000000,'admin','','["j_q3nfrb0jrfn3"]','{"names":["dropped"]}');
INSERT INTO "event" VALUES(36,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00f20nzsxjk642r"]','{}');
INSERT INTO "event" VALUES(37,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw007qc9756mhywtn"]','{}');
INSERT INTO "event" VALUES(38,'run.claimed',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00f20nzsxjk642r","r_1j7a9agqw007qc9756mhywtn"]','{}');
INSERT INTO "event" VALUES(39,'run.started',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00f20nzsxjk642r","r_1j7a9agqw007qc9756mhywtn"]','{}');
INSERT INTO "event" VALUES(40,'run.finished',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00f20nzsxjk642r"]','{"state":"COMPLETED","cause":"","attempts":[1]}');
INSERT INTO "event" VALUES(41,'run.finished',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw007qc9756mhywtn"]','{"state":"FAILED","cause":"exit 1","attempts":[1]}');
INSERT INTO "event" VALUES(42,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00d62aekc7dhg1e"]','{}');
INSERT INTO "event" VALUES(43,'run.claimed',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00d62aekc7dhg1e"]','{}');
INSERT INTO "event" VALUES(44,'run.started',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00d62aekc7dhg1e"]','{}');
INSERT INTO "event" VALUES(45,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw000t27h4712zr61"]','{}');
INSERT INTO "event" VALUES(46,'cart.submitted',1767268800000000,'admin','','["c_kkdbwcqc5k9s"]','{"name":"rollout","items":3}');
INSERT INTO "event" VALUES(47,'cart.defined',1767268800000000,'admin','','["fleet"]','{}');
INSERT INTO "event" VALUES(48,'calendar.created',1767268800000000,'admin','web','["nights"]','{}');
INSERT INTO "event" VALUES(49,'limit.saved',1767268800000000,'admin','web','[]','{"name":"calls"}');
INSERT INTO "event" VALUES(50,'resource.saved',1767268800000000,'admin','web','[]','{"name":"license"}');
INSERT INTO "event" VALUES(51,'share.weighted',1767268800000000,'admin','','["web"]','{"weight":1.0}');
INSERT INTO "event" VALUES(52,'job.created',1767268800000000,'admin','','["j_70b98kav0sse","j_0v6re1a0qvgn","j_h4490cbakgw7","j_fe3xcqbreyqz","j_zjdegdz3mer4","j_2v4s1cq95ndx","j_983xqwcgzjfn"]','{}');
INSERT INTO "event" VALUES(53,'job.deleted',1767268800000000,'admin','','["j_70b98kav0sse"]','{"names":["dropped"]}');
INSERT INTO "event" VALUES(54,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw0099tn013wv5jpx"]','{}');
INSERT INTO "event" VALUES(55,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00cxyt1c9fbqs32"]','{}');
INSERT INTO "event" VALUES(56,'run.claimed',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw0099tn013wv5jpx","r_1j7a9agqw00cxyt1c9fbqs32"]','{}');
INSERT INTO "event" VALUES(57,'run.started',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw0099tn013wv5jpx","r_1j7a9agqw00cxyt1c9fbqs32"]','{}');
INSERT INTO "event" VALUES(58,'run.finished',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw0099tn013wv5jpx"]','{"state":"COMPLETED","cause":"","attempts":[1]}');
INSERT INTO "event" VALUES(59,'run.finished',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00cxyt1c9fbqs32"]','{"state":"FAILED","cause":"exit 1","attempts":[1]}');
INSERT INTO "event" VALUES(60,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00dvznbkxnq3rkt"]','{}');
INSERT INTO "event" VALUES(61,'run.claimed',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00dvznbkxnq3rkt"]','{}');
INSERT INTO "event" VALUES(62,'run.started',1767268800000000,'w_21ptvt5541gc','','["r_1j7a9agqw00dvznbkxnq3rkt"]','{}');
INSERT INTO "event" VALUES(63,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00c4m6x6xxbp47b"]','{}');
INSERT INTO "event" VALUES(64,'cart.submitted',1767268800000000,'admin','','["c_kq296fr073gz"]','{"name":"rollout","items":3}');
INSERT INTO "event" VALUES(65,'job.paused',1767268800000000,'admin','','["j_zjdegdz3mer4"]','{}');
INSERT INTO "event" VALUES(66,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00b5zmy9mmtxqgh"]','{}');
INSERT INTO "event" VALUES(67,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw00fjhgzahxeta4j"]','{}');
INSERT INTO "event" VALUES(68,'run.queued',1767268800000000,'admin','','["r_1j7a9agqw0079kjcmq37hrj4"]','{}');
CREATE TABLE idempotency (
    key        TEXT PRIMARY KEY,
    digest     TEXT NOT NULL,
    answer     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE job (
    id               TEXT PRIMARY KEY,
    project          TEXT NOT NULL,
    name             TEXT NOT NULL,
    version          INTEGER NOT NULL,
    shard            INTEGER NOT NULL,
    set_name         TEXT NOT NULL,
    created_by       TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    enabled          INTEGER NOT NULL,
    paused           INTEGER NOT NULL DEFAULT 0,
    paused_by        TEXT NOT NULL DEFAULT '',
    paused_until     INTEGER,
    finished_at      INTEGER,
    deleted_at       INTEGER,
    expected_seconds REAL,
    stuck_since      INTEGER 
) STRICT, WITHOUT ROWID;
INSERT INTO "job" VALUES('j_0v6re1a0qvgn','web','far',1,55,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_2v4s1cq95ndx','web','report',1,84,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_70b98kav0sse','web','dropped',1,7,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,1767268800000000,NULL,NULL);
INSERT INTO "job" VALUES('j_79mxe4dh7dyb','etl','limited',1,33,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_983xqwcgzjfn','web','tidy',1,215,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,0.0,NULL);
INSERT INTO "job" VALUES('j_ag5xtmmq88ew','etl','report',1,194,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_fe3xcqbreyqz','web','night-only',1,129,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_fq3f1dnytjv9','default','nightly',1,36,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_h371sa2t3cf1','etl','nightly',1,89,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_h4490cbakgw7','web','limited',1,80,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_j8zk353q5636','default','report',1,3,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_kfsn7ftn788t','default','far',1,161,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_m652k07dmpda','etl','far',1,88,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_ncenm8qmjkqk','default','limited',1,239,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_nnwenj0g17ft','etl','tidy',1,113,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,0.0,NULL);
INSERT INTO "job" VALUES('j_q3nfrb0jrfn3','etl','dropped',1,158,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,1767268800000000,NULL,NULL);
INSERT INTO "job" VALUES('j_q4t3zp97whfm','etl','night-only',1,99,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_rhrb41j7e448','default','night-only',1,16,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_va2zs63w9yaa','default','dropped',1,131,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,1767268800000000,NULL,NULL);
INSERT INTO "job" VALUES('j_zjdegdz3mer4','web','nightly',1,65,'all','admin',1767268800000000,1767268800000000,1,1,'admin',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES('j_zsaec473m0td','default','tidy',1,119,'all','admin',1767268800000000,1767268800000000,1,0,'',NULL,NULL,NULL,0.0,NULL);
CREATE TABLE job_version (
    job_id     TEXT NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT NOT NULL,
    digest     TEXT NOT NULL,
    rules      TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, version)
) STRICT, WITHOUT ROWID;
INSERT INTO "job_version" VALUES('j_0v6re1a0qvgn',1,'{"name":"far","project":"web","steps":[{"run":"true"}],"pool":"gpu"}','a7345ad9dc964a35','{"name":"far","project":"web","pool":"gpu","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_2v4s1cq95ndx',1,'{"name":"report","project":"web","schedule":"every 1h","steps":[{"run":"true"}],"after":{"jobs":["nightly"]}}','089ae3eb247e13e9','{"name":"report","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":["nightly"],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_70b98kav0sse',1,'{"name":"dropped","project":"web","steps":[{"run":"true"}]}','a11a97224f2a69d0','{"name":"dropped","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_79mxe4dh7dyb',1,'{"name":"limited","project":"etl","steps":[{"run":"true"}],"rate_limits":[{"name":"calls"}]}','201254f8bd95b8db','{"name":"limited","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{"calls":1},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_983xqwcgzjfn',1,'{"name":"tidy","project":"web","max_concurrency":9,"steps":[{"run":"true"}]}','f86cab293400773a','{"name":"tidy","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":9,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_ag5xtmmq88ew',1,'{"name":"report","project":"etl","schedule":"every 1h","steps":[{"run":"true"}],"after":{"jobs":["nightly"]}}','e6589c444799b344','{"name":"report","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":["nightly"],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_fe3xcqbreyqz',1,'{"name":"night-only","project":"web","schedule":"every 10m","calendars":["nights"],"steps":[{"run":"true"}]}','0f5b20e2b6750d30','{"name":"night-only","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_fq3f1dnytjv9',1,'{"name":"nightly","project":"default","schedule":"every 1h","overlap":"allow","steps":[{"run":"true"}]}','e2af570c9ba4b9cb','{"name":"nightly","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"allow","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_h371sa2t3cf1',1,'{"name":"nightly","project":"etl","schedule":"every 1h","overlap":"allow","steps":[{"run":"true"}]}','1add32e10a94c1e3','{"name":"nightly","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"allow","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_h4490cbakgw7',1,'{"name":"limited","project":"web","steps":[{"run":"true"}],"rate_limits":[{"name":"calls"}]}','614fe942f57c9666','{"name":"limited","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{"calls":1},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_j8zk353q5636',1,'{"name":"report","project":"default","schedule":"every 1h","steps":[{"run":"true"}],"after":{"jobs":["nightly"]}}','e65e31a35cd91338','{"name":"report","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":["nightly"],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_kfsn7ftn788t',1,'{"name":"far","project":"default","steps":[{"run":"true"}],"pool":"gpu"}','acf2c638d2ad0cc2','{"name":"far","project":"default","pool":"gpu","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_m652k07dmpda',1,'{"name":"far","project":"etl","steps":[{"run":"true"}],"pool":"gpu"}','eddbfff0ee946137','{"name":"far","project":"etl","pool":"gpu","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_ncenm8qmjkqk',1,'{"name":"limited","project":"default","steps":[{"run":"true"}],"rate_limits":[{"name":"calls"}]}','4ed9be367aceb39e','{"name":"limited","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{"calls":1},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_nnwenj0g17ft',1,'{"name":"tidy","project":"etl","max_concurrency":9,"steps":[{"run":"true"}]}','815cbd5fa82e99ee','{"name":"tidy","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":9,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_q3nfrb0jrfn3',1,'{"name":"dropped","project":"etl","steps":[{"run":"true"}]}','3ac817a9bd3ce885','{"name":"dropped","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_q4t3zp97whfm',1,'{"name":"night-only","project":"etl","schedule":"every 10m","calendars":["nights"],"steps":[{"run":"true"}]}','38a51d1a6ee53256','{"name":"night-only","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_rhrb41j7e448',1,'{"name":"night-only","project":"default","schedule":"every 10m","calendars":["nights"],"steps":[{"run":"true"}]}','c367e715e312e66e','{"name":"night-only","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_va2zs63w9yaa',1,'{"name":"dropped","project":"default","steps":[{"run":"true"}]}','6467fa58dedc2666','{"name":"dropped","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_zjdegdz3mer4',1,'{"name":"nightly","project":"web","schedule":"every 1h","overlap":"allow","steps":[{"run":"true"}]}','fc00a9e2b67ac6d7','{"name":"nightly","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"allow","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}','admin',1767268800000000);
INSERT INTO "job_version" VALUES('j_zsaec473m0td',1,'{"name":"tidy","project":"default","max_concurrency":9,"steps":[{"run":"true"}]}','9b1811a3bc4b22cf','{"name":"tidy","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":9,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}','admin',1767268800000000);
CREATE TABLE kept_key (
    key       TEXT PRIMARY KEY,
    seq       INTEGER NOT NULL,
    amount    INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    waits_for TEXT NOT NULL
);
CREATE TABLE key_charge (
    key    TEXT NOT NULL,
    at     INTEGER NOT NULL,
    seq    INTEGER NOT NULL, 
    amount INTEGER NOT NULL,
    PRIMARY KEY (key, at, seq)
) WITHOUT ROWID;
CREATE TABLE late_result (
    run_id      TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    session     TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    result      TEXT NOT NULL,
    message     TEXT NOT NULL,
    PRIMARY KEY (run_id, attempt, session)
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('clock','1767268800000000');
CREATE TABLE output_chunk (
    run_id     TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    session    TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    lines      INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    key        TEXT NOT NULL,
    PRIMARY KEY (run_id, attempt, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE pool (
    name   TEXT PRIMARY KEY,
    served INTEGER NOT NULL
, totals TEXT NOT NULL DEFAULT '{}') STRICT, WITHOUT ROWID;
INSERT INTO "pool" VALUES('default',9,'{"slots":100000}');
CREATE TABLE prediction (
    run_id   TEXT PRIMARY KEY,
    made_at  INTEGER NOT NULL,
    start_at INTEGER NOT NULL
);
CREATE TABLE rekeying (
    project TEXT PRIMARY KEY,
    since   INTEGER NOT NULL, 
    after   INTEGER NOT NULL 
);
CREATE TABLE reservation (
    pool       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    session    TEXT NOT NULL,
    shape      TEXT NOT NULL,
    behind     TEXT NOT NULL, 
    expires_at INTEGER NOT NULL
);
CREATE TABLE run (
    seq              INTEGER PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    project          TEXT NOT NULL,
    job_id           TEXT NOT NULL,
    job              TEXT NOT NULL,
    job_version      INTEGER NOT NULL,
    trigger          TEXT NOT NULL,
    state            TEXT NOT NULL,
    cause            TEXT NOT NULL DEFAULT '',
    message          TEXT NOT NULL DEFAULT '',
    due_at           INTEGER NOT NULL,
    release_at       INTEGER NOT NULL,
    eligible_at      INTEGER,
    deadline_at      INTEGER,
    late_at          INTEGER, 
    drop_at          INTEGER, 
    is_late          INTEGER, 
    priority         INTEGER NOT NULL,
    pool             TEXT NOT NULL,
    chain            TEXT NOT NULL,
    shape            TEXT NOT NULL,
    delivery         TEXT NOT NULL,
    max_attempts     INTEGER NOT NULL,
    attempt          INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    losses           INTEGER NOT NULL DEFAULT 0,
    session          TEXT,
    capacity         REAL NOT NULL DEFAULT 0, 
    expected         REAL NOT NULL,
    blocked_on       TEXT,
    reasons          TEXT,
    inputs           TEXT,
    outputs          TEXT,
    progress         TEXT,
    created_by       TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    queued_at        INTEGER,
    claimed_at       INTEGER,
    started_at       INTEGER,
    first_started_at INTEGER,
    ended_at         INTEGER,
    cancel_at        INTEGER,
    cancel_by        TEXT NOT NULL DEFAULT '',
    exit_code        INTEGER,
    signal           INTEGER,
    retry_of         TEXT,
    backfill         TEXT,
    
    gate_job         TEXT,
    
    result           TEXT,
    steps            TEXT,
    cpu_seconds      REAL NOT NULL DEFAULT 0,
    max_memory       INTEGER NOT NULL DEFAULT 0,
    output           BLOB,
    output_state     TEXT NOT NULL DEFAULT 'none',
    output_bytes     INTEGER NOT NULL DEFAULT 0,
    output_lines     INTEGER NOT NULL DEFAULT 0,
    truncated        INTEGER NOT NULL DEFAULT 0
, caught_up INTEGER NOT NULL DEFAULT 0, cart TEXT, item TEXT, keys TEXT, timeout INTEGER, follows TEXT, previous_due INTEGER) STRICT;
INSERT INTO "run" VALUES(1,'r_1j7a9agqw007mw81e0ns0936','default','j_zsaec473m0td','tidy',1,'manual','COMPLETED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/default/admin','','at_least_once',1,1,0,0,'w_21ptvt5541gc',0.01,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,'',0,NULL,NULL,NULL,'j_zsaec473m0td','COMPLETED',NULL,0.0,0,X'31303030207374646F757420317C646F6E650A','inline',5,1,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(2,'r_1j7a9agqw005adwb23g77pty','default','j_zsaec473m0td','tidy',1,'manual','FAILED','exit 1','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/default/admin','','at_least_once',1,1,1,0,'w_21ptvt5541gc',0.01,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,'',1,NULL,NULL,NULL,'j_zsaec473m0td','FAILED',NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(3,'r_1j7a9agqw00dxn0yqhfb0mtt','default','j_zsaec473m0td','tidy',1,'manual','PROCESSING','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/default/admin','','at_least_once',1,1,0,0,'w_21ptvt5541gc',0.01,0.001,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,NULL,'',NULL,NULL,NULL,NULL,'j_zsaec473m0td',NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(4,'r_1j7a9agqw00av6frzqdpqxtk','default','j_kfsn7ftn788t','far',1,'manual','QUEUED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'gpu','gpu/5/default/admin','','at_least_once',1,0,0,0,NULL,0.0,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(5,'r_1j7a9agqw00f20nzsxjk642r','etl','j_nnwenj0g17ft','tidy',1,'manual','COMPLETED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/etl/admin','','at_least_once',1,1,0,0,'w_21ptvt5541gc',0.01,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,'',0,NULL,NULL,NULL,'j_nnwenj0g17ft','COMPLETED',NULL,0.0,0,X'31303030207374646F757420317C646F6E650A','inline',5,1,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(6,'r_1j7a9agqw007qc9756mhywtn','etl','j_nnwenj0g17ft','tidy',1,'manual','FAILED','exit 1','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/etl/admin','','at_least_once',1,1,1,0,'w_21ptvt5541gc',0.01,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,'',1,NULL,NULL,NULL,'j_nnwenj0g17ft','FAILED',NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(7,'r_1j7a9agqw00d62aekc7dhg1e','etl','j_nnwenj0g17ft','tidy',1,'manual','PROCESSING','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/etl/admin','','at_least_once',1,1,0,0,'w_21ptvt5541gc',0.01,0.001,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,NULL,'',NULL,NULL,NULL,NULL,'j_nnwenj0g17ft',NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(8,'r_1j7a9agqw000t27h4712zr61','etl','j_m652k07dmpda','far',1,'manual','QUEUED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'gpu','gpu/5/etl/admin','','at_least_once',1,0,0,0,NULL,0.0,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(9,'r_1j7a9agqw0099tn013wv5jpx','web','j_983xqwcgzjfn','tidy',1,'manual','COMPLETED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/web/admin','','at_least_once',1,1,0,0,'w_21ptvt5541gc',0.01,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,'',0,NULL,NULL,NULL,'j_983xqwcgzjfn','COMPLETED',NULL,0.0,0,X'31303030207374646F757420317C646F6E650A','inline',5,1,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(10,'r_1j7a9agqw00cxyt1c9fbqs32','web','j_983xqwcgzjfn','tidy',1,'manual','FAILED','exit 1','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/web/admin','','at_least_once',1,1,1,0,'w_21ptvt5541gc',0.01,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,'',1,NULL,NULL,NULL,'j_983xqwcgzjfn','FAILED',NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(11,'r_1j7a9agqw00dvznbkxnq3rkt','web','j_983xqwcgzjfn','tidy',1,'manual','PROCESSING','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/web/admin','','at_least_once',1,1,0,0,'w_21ptvt5541gc',0.01,0.001,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,1767268800000000,1767268800000000,1767268800000000,NULL,NULL,'',NULL,NULL,NULL,NULL,'j_983xqwcgzjfn',NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(12,'r_1j7a9agqw00c4m6x6xxbp47b','web','j_0v6re1a0qvgn','far',1,'manual','QUEUED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'gpu','gpu/5/web/admin','','at_least_once',1,0,0,0,NULL,0.0,1.0,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(13,'r_1j7a9agqw00b5zmy9mmtxqgh','default','j_zsaec473m0td','tidy',1,'manual','QUEUED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/default/admin','','at_least_once',1,0,0,0,NULL,0.0,0.001,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,'j_zsaec473m0td',NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(14,'r_1j7a9agqw00fjhgzahxeta4j','etl','j_nnwenj0g17ft','tidy',1,'manual','QUEUED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/etl/admin','','at_least_once',1,0,0,0,NULL,0.0,0.001,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,'j_nnwenj0g17ft',NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(15,'r_1j7a9agqw0079kjcmq37hrj4','web','j_983xqwcgzjfn','tidy',1,'manual','QUEUED','','',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,5,'default','default/5/web/admin','','at_least_once',1,0,0,0,NULL,0.0,0.001,NULL,NULL,NULL,NULL,NULL,'admin',1767268800000000,1767268800000000,NULL,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,'j_983xqwcgzjfn',NULL,NULL,0.0,0,NULL,'none',0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE run_key (
    key    TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (key, seq)
);
CREATE TABLE schedule (
    job_id    TEXT PRIMARY KEY,
    shard     INTEGER NOT NULL,
    next_at   INTEGER,
    held_from INTEGER,
    anchor    INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    waits     INTEGER NOT NULL DEFAULT 0 
, answered_to INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
INSERT INTO "schedule" VALUES('j_0v6re1a0qvgn',55,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_2v4s1cq95ndx',84,1767272400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_70b98kav0sse',7,NULL,NULL,1767268800000000,2,0,0);
INSERT INTO "schedule" VALUES('j_79mxe4dh7dyb',33,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_983xqwcgzjfn',215,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_ag5xtmmq88ew',194,1767272400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_fe3xcqbreyqz',129,1767269400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_fq3f1dnytjv9',36,1767272400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_h371sa2t3cf1',89,1767272400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_h4490cbakgw7',80,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_j8zk353q5636',3,1767272400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_kfsn7ftn788t',161,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_m652k07dmpda',88,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_ncenm8qmjkqk',239,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_nnwenj0g17ft',113,NULL,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_q3nfrb0jrfn3',158,NULL,NULL,1767268800000000,2,0,0);
INSERT INTO "schedule" VALUES('j_q4t3zp97whfm',99,1767269400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_rhrb41j7e448',16,1767269400000000,NULL,1767268800000000,1,0,0);
INSERT INTO "schedule" VALUES('j_va2zs63w9yaa',131,NULL,NULL,1767268800000000,2,0,0);
INSERT INTO "schedule" VALUES('j_zjdegdz3mer4',65,NULL,1767272400000000,1767268800000000,2,0,0);
INSERT INTO "schedule" VALUES('j_zsaec473m0td',119,NULL,NULL,1767268800000000,1,0,0);
CREATE TABLE server (
    id         TEXT PRIMARY KEY, 
    name       TEXT NOT NULL,
    url        TEXT NOT NULL,
    roles      TEXT NOT NULL,
    zone       TEXT NOT NULL,
    version    TEXT NOT NULL,
    lease      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    stopping   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE session (
    id            TEXT PRIMARY KEY,
    worker        TEXT NOT NULL,
    pool          TEXT NOT NULL,
    slots         INTEGER NOT NULL,
    labels        TEXT NOT NULL,
    functions     TEXT NOT NULL,
    guard_mode    TEXT NOT NULL,
    version       TEXT NOT NULL,
    lease         INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    beats         INTEGER NOT NULL DEFAULT 0,
    alive         INTEGER NOT NULL DEFAULT 1,
    stopping      INTEGER NOT NULL DEFAULT 0
, server TEXT NOT NULL DEFAULT '', stream INTEGER NOT NULL DEFAULT 1, resources TEXT NOT NULL DEFAULT '{}', offers TEXT NOT NULL DEFAULT '[]', trouble TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;
INSERT INTO "session" VALUES('w_21ptvt5541gc','node','default',100,'{}','[]','','',30000000,1767268800000000,1767268830000000,0,1,0,'',1,'{}','[]','');
CREATE TABLE shape (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO "shape" VALUES('');
CREATE TABLE shard (
    number   INTEGER PRIMARY KEY,
    owner    TEXT, 
    epoch    INTEGER NOT NULL DEFAULT 0, 
    taken_at INTEGER
) STRICT;
INSERT INTO "shard" VALUES(0,NULL,0,NULL);
INSERT INTO "shard" VALUES(1,NULL,0,NULL);
INSERT INTO "shard" VALUES(2,NULL,0,NULL);
INSERT INTO "shard" VALUES(3,NULL,0,NULL);
INSERT INTO "shard" VALUES(4,NULL,0,NULL);
INSERT INTO "shard" VALUES(5,NULL,0,NULL);
INSERT INTO "shard" VALUES(6,NULL,0,NULL);
INSERT INTO "shard" VALUES(7,NULL,0,NULL);
INSERT INTO "shard" VALUES(8,NULL,0,NULL);
INSERT INTO "shard" VALUES(9,NULL,0,NULL);
INSERT INTO "shard" VALUES(10,NULL,0,NULL);
INSERT INTO "shard" VALUES(11,NULL,0,NULL);
INSERT INTO "shard" VALUES(12,NULL,0,NULL);
INSERT INTO "shard" VALUES(13,NULL,0,NULL);
INSERT INTO "shard" VALUES(14,NULL,0,NULL);
INSERT INTO "shard" VALUES(15,NULL,0,NULL);
INSERT INTO "shard" VALUES(16,NULL,0,NULL);
INSERT INTO "shard" VALUES(17,NULL,0,NULL);
INSERT INTO "shard" VALUES(18,NULL,0,NULL);
INSERT INTO "shard" VALUES(19,NULL,0,NULL);
INSERT INTO "shard" VALUES(20,NULL,0,NULL);
INSERT INTO "shard" VALUES(21,NULL,0,NULL);
INSERT INTO "shard" VALUES(22,NULL,0,NULL);
INSERT INTO "shard" VALUES(23,NULL,0,NULL);
INSERT INTO "shard" VALUES(24,NULL,0,NULL);
INSERT INTO "shard" VALUES(25,NULL,0,NULL);
INSERT INTO "shard" VALUES(26,NULL,0,NULL);
INSERT INTO "shard" VALUES(27,NULL,0,NULL);
INSERT INTO "shard" VALUES(28,NULL,0,NULL);
INSERT INTO "shard" VALUES(29,NULL,0,NULL);
INSERT INTO "shard" VALUES(30,NULL,0,NULL);
INSERT INTO "shard" VALUES(31,NULL,0,NULL);
INSERT INTO "shard" VALUES(32,NULL,0,NULL);
INSERT INTO "shard" VALUES(33,NULL,0,NULL);
INSERT INTO "shard" VALUES(34,NULL,0,NULL);
INSERT INTO "shard" VALUES(35,NULL,0,NULL);
INSERT INTO "shard" VALUES(36,NULL,0,NULL);
INSERT INTO "shard" VALUES(37,NULL,0,NULL);
INSERT INTO "shard" VALUES(38,NULL,0,NULL);
INSERT INTO "shard" VALUES(39,NULL,0,NULL);
INSERT INTO "shard" VALUES(40,NULL,0,NULL);
INSERT INTO "shard" VALUES(41,NULL,0,NULL);
INSERT INTO "shard" VALUES(42,NULL,0,NULL);
INSERT INTO "shard" VALUES(43,NULL,0,NULL);
INSERT INTO "shard" VALUES(44,NULL,0,NULL);
INSERT INTO "shard" VALUES(45,NULL,0,NULL);
INSERT INTO "shard" VALUES(46,NULL,0,NULL);
INSERT INTO "shard" VALUES(47,NULL,0,NULL);
INSERT INTO "shard" VALUES(48,NULL,0,NULL);
INSERT INTO "shard" VALUES(49,NULL,0,NULL);
INSERT INTO "shard" VALUES(50,NULL,0,NULL);
INSERT INTO "shard" VALUES(51,NULL,0,NULL);
INSERT INTO "shard" VALUES(52,NULL,0,NULL);
INSERT INTO "shard" VALUES(53,NULL,0,NULL);
INSERT INTO "shard" VALUES(54,NULL,0,NULL);
INSERT INTO "shard" VALUES(55,NULL,0,NULL);
INSERT INTO "shard" VALUES(56,NULL,0,NULL);
INSERT INTO "shard" VALUES(57,NULL,0,NULL);
INSERT INTO "shard" VALUES(58,NULL,0,NULL);
INSERT INTO "shard" VALUES(59,NULL,0,NULL);
INSERT INTO "shard" VALUES(60,NULL,0,NULL);
INSERT INTO "shard" VALUES(61,NULL,0,NULL);
INSERT INTO "shard" VALUES(62,NULL,0,NULL);
INSERT INTO "shard" VALUES(63,NULL,0,NULL);
INSERT INTO "shard" VALUES(64,NULL,0,NULL);
INSERT INTO "shard" VALUES(65,NULL,0,NULL);
INSERT INTO "shard" VALUES(66,NULL,0,NULL);
INSERT INTO "shard" VALUES(67,NULL,0,NULL);
INSERT INTO "shard" VALUES(68,NULL,0,NULL);
INSERT INTO "shard" VALUES(69,NULL,0,NULL);
INSERT INTO "shard" VALUES(70,NULL,0,NULL);
INSERT INTO "shard" VALUES(71,NULL,0,NULL);
INSERT INTO "shard" VALUES(72,NULL,0,NULL);
INSERT INTO "shard" VALUES(73,NULL,0,NULL);
INSERT INTO "shard" VALUES(74,NULL,0,NULL);
INSERT INTO "shard" VALUES(75,NULL,0,NULL);
INSERT INTO "shard" VALUES(76,NULL,0,NULL);
INSERT INTO "shard" VALUES(77,NULL,0,NULL);
INSERT INTO "shard" VALUES(78,NULL,0,NULL);
INSERT INTO "shard" VALUES(79,NULL,0,NULL);
INSERT INTO "shard" VALUES(80,NULL,0,NULL);
INSERT INTO "shard" VALUES(81,NULL,0,NULL);
INSERT INTO "shard" VALUES(82,NULL,0,NULL);
INSERT INTO "shard" VALUES(83,NULL,0,NULL);
INSERT INTO "shard" VALUES(84,NULL,0,NULL);
INSERT INTO "shard" VALUES(85,NULL,0,NULL);
INSERT INTO "shard" VALUES(86,NULL,0,NULL);
INSERT INTO "shard" VALUES(87,NULL,0,NULL);
INSERT INTO "shard" VALUES(88,NULL,0,NULL);
INSERT INTO "shard" VALUES(89,NULL,0,NULL);
INSERT INTO "shard" VALUES(90,NULL,0,NULL);
INSERT INTO "shard" VALUES(91,NULL,0,NULL);
INSERT INTO "shard" VALUES(92,NULL,0,NULL);
INSERT INTO "shard" VALUES(93,NULL,0,NULL);
INSERT INTO "shard" VALUES(94,NULL,0,NULL);
INSERT INTO "shard" VALUES(95,NULL,0,NULL);
INSERT INTO "shard" VALUES(96,NULL,0,NULL);
INSERT INTO "shard" VALUES(97,NULL,0,NULL);
INSERT INTO "shard" VALUES(98,NULL,0,NULL);
INSERT INTO "shard" VALUES(99,NULL,0,NULL);
INSERT INTO "shard" VALUES(100,NULL,0,NULL);
INSERT INTO "shard" VALUES(101,NULL,0,NULL);
INSERT INTO "shard" VALUES(102,NULL,0,NULL);
INSERT INTO "shard" VALUES(103,NULL,0,NULL);
INSERT INTO "shard" VALUES(104,NULL,0,NULL);
INSERT INTO "shard" VALUES(105,NULL,0,NULL);
INSERT INTO "shard" VALUES(106,NULL,0,NULL);
INSERT INTO "shard" VALUES(107,NULL,0,NULL);
INSERT INTO "shard" VALUES(108,NULL,0,NULL);
INSERT INTO "shard" VALUES(109,NULL,0,NULL);
INSERT INTO "shard" VALUES(110,NULL,0,NULL);
INSERT INTO "shard" VALUES(111,NULL,0,NULL);
INSERT INTO "shard" VALUES(112,NULL,0,NULL);
INSERT INTO "shard" VALUES(113,NULL,0,NULL);
INSERT INTO "shard" VALUES(114,NULL,0,NULL);
INSERT INTO "shard" VALUES(115,NULL,0,NULL);
INSERT INTO "shard" VALUES(116,NULL,0,NULL);
INSERT INTO "shard" VALUES(117,NULL,0,NULL);
INSERT INTO "shard" VALUES(118,NULL,0,NULL);
INSERT INTO "shard" VALUES(119,NULL,0,NULL);
INSERT INTO "shard" VALUES(120,NULL,0,NULL);
INSERT INTO "shard" VALUES(121,NULL,0,NULL);
INSERT INTO "shard" VALUES(122,NULL,0,NULL);
INSERT INTO "shard" VALUES(123,NULL,0,NULL);
INSERT INTO "shard" VALUES(124,NULL,0,NULL);
INSERT INTO "shard" VALUES(125,NULL,0,NULL);
INSERT INTO "shard" VALUES(126,NULL,0,NULL);
INSERT INTO "shard" VALUES(127,NULL,0,NULL);
INSERT INTO "shard" VALUES(128,NULL,0,NULL);
INSERT INTO "shard" VALUES(129,NULL,0,NULL);
INSERT INTO "shard" VALUES(130,NULL,0,NULL);
INSERT INTO "shard" VALUES(131,NULL,0,NULL);
INSERT INTO "shard" VALUES(132,NULL,0,NULL);
INSERT INTO "shard" VALUES(133,NULL,0,NULL);
INSERT INTO "shard" VALUES(134,NULL,0,NULL);
INSERT INTO "shard" VALUES(135,NULL,0,NULL);
INSERT INTO "shard" VALUES(136,NULL,0,NULL);
INSERT INTO "shard" VALUES(137,NULL,0,NULL);
INSERT INTO "shard" VALUES(138,NULL,0,NULL);
INSERT INTO "shard" VALUES(139,NULL,0,NULL);
INSERT INTO "shard" VALUES(140,NULL,0,NULL);
INSERT INTO "shard" VALUES(141,NULL,0,NULL);
INSERT INTO "shard" VALUES(142,NULL,0,NULL);
INSERT INTO "shard" VALUES(143,NULL,0,NULL);
INSERT INTO "shard" VALUES(144,NULL,0,NULL);
INSERT INTO "shard" VALUES(145,NULL,0,NULL);
INSERT INTO "shard" VALUES(146,NULL,0,NULL);
INSERT INTO "shard" VALUES(147,NULL,0,NULL);
INSERT INTO "shard" VALUES(148,NULL,0,NULL);
INSERT INTO "shard" VALUES(149,NULL,0,NULL);
INSERT INTO "shard" VALUES(150,NULL,0,NULL);
INSERT INTO "shard" VALUES(151,NULL,0,NULL);
INSERT INTO "shard" VALUES(152,NULL,0,NULL);
INSERT INTO "shard" VALUES(153,NULL,0,NULL);
INSERT INTO "shard" VALUES(154,NULL,0,NULL);
INSERT INTO "shard" VALUES(155,NULL,0,NULL);
INSERT INTO "shard" VALUES(156,NULL,0,NULL);
INSERT INTO "shard" VALUES(157,NULL,0,NULL);
INSERT INTO "shard" VALUES(158,NULL,0,NULL);
INSERT INTO "shard" VALUES(159,NULL,0,NULL);
INSERT INTO "shard" VALUES(160,NULL,0,NULL);
INSERT INTO "shard" VALUES(161,NULL,0,NULL);
INSERT INTO "shard" VALUES(162,NULL,0,NULL);
INSERT INTO "shard" VALUES(163,NULL,0,NULL);
INSERT INTO "shard" VALUES(164,NULL,0,NULL);
INSERT INTO "shard" VALUES(165,NULL,0,NULL);
INSERT INTO "shard" VALUES(166,NULL,0,NULL);
INSERT INTO "shard" VALUES(167,NULL,0,NULL);
INSERT INTO "shard" VALUES(168,NULL,0,NULL);
INSERT INTO "shard" VALUES(169,NULL,0,NULL);
INSERT INTO "shard" VALUES(170,NULL,0,NULL);
INSERT INTO "shard" VALUES(171,NULL,0,NULL);
INSERT INTO "shard" VALUES(172,NULL,0,NULL);
INSERT INTO "shard" VALUES(173,NULL,0,NULL);
INSERT INTO "shard" VALUES(174,NULL,0,NULL);
INSERT INTO "shard" VALUES(175,NULL,0,NULL);
INSERT INTO "shard" VALUES(176,NULL,0,NULL);
INSERT INTO "shard" VALUES(177,NULL,0,NULL);
INSERT INTO "shard" VALUES(178,NULL,0,NULL);
INSERT INTO "shard" VALUES(179,NULL,0,NULL);
INSERT INTO "shard" VALUES(180,NULL,0,NULL);
INSERT INTO "shard" VALUES(181,NULL,0,NULL);
INSERT INTO "shard" VALUES(182,NULL,0,NULL);
INSERT INTO "shard" VALUES(183,NULL,0,NULL);
INSERT INTO "shard" VALUES(184,NULL,0,NULL);
INSERT INTO "shard" VALUES(185,NULL,0,NULL);
INSERT INTO "shard" VALUES(186,NULL,0,NULL);
INSERT INTO "shard" VALUES(187,NULL,0,NULL);
INSERT INTO "shard" VALUES(188,NULL,0,NULL);
INSERT INTO "shard" VALUES(189,NULL,0,NULL);
INSERT INTO "shard" VALUES(190,NULL,0,NULL);
INSERT INTO "shard" VALUES(191,NULL,0,NULL);
INSERT INTO "shard" VALUES(192,NULL,0,NULL);
INSERT INTO "shard" VALUES(193,NULL,0,NULL);
INSERT INTO "shard" VALUES(194,NULL,0,NULL);
INSERT INTO "shard" VALUES(195,NULL,0,NULL);
INSERT INTO "shard" VALUES(196,NULL,0,NULL);
INSERT INTO "shard" VALUES(197,NULL,0,NULL);
INSERT INTO "shard" VALUES(198,NULL,0,NULL);
INSERT INTO "shard" VALUES(199,NULL,0,NULL);
INSERT INTO "shard" VALUES(200,NULL,0,NULL);
INSERT INTO "shard" VALUES(201,NULL,0,NULL);
INSERT INTO "shard" VALUES(202,NULL,0,NULL);
INSERT INTO "shard" VALUES(203,NULL,0,NULL);
INSERT INTO "shard" VALUES(204,NULL,0,NULL);
INSERT INTO "shard" VALUES(205,NULL,0,NULL);
INSERT INTO "shard" VALUES(206,NULL,0,NULL);
INSERT INTO "shard" VALUES(207,NULL,0,NULL);
INSERT INTO "shard" VALUES(208,NULL,0,NULL);
INSERT INTO "shard" VALUES(209,NULL,0,NULL);
INSERT INTO "shard" VALUES(210,NULL,0,NULL);
INSERT INTO "shard" VALUES(211,NULL,0,NULL);
INSERT INTO "shard" VALUES(212,NULL,0,NULL);
INSERT INTO "shard" VALUES(213,NULL,0,NULL);
INSERT INTO "shard" VALUES(214,NULL,0,NULL);
INSERT INTO "shard" VALUES(215,NULL,0,NULL);
INSERT INTO "shard" VALUES(216,NULL,0,NULL);
INSERT INTO "shard" VALUES(217,NULL,0,NULL);
INSERT INTO "shard" VALUES(218,NULL,0,NULL);
INSERT INTO "shard" VALUES(219,NULL,0,NULL);
INSERT INTO "shard" VALUES(220,NULL,0,NULL);
INSERT INTO "shard" VALUES(221,NULL,0,NULL);
INSERT INTO "shard" VALUES(222,NULL,0,NULL);
INSERT INTO "shard" VALUES(223,NULL,0,NULL);
INSERT INTO "shard" VALUES(224,NULL,0,NULL);
INSERT INTO "shard" VALUES(225,NULL,0,NULL);
INSERT INTO "shard" VALUES(226,NULL,0,NULL);
INSERT INTO "shard" VALUES(227,NULL,0,NULL);
INSERT INTO "shard" VALUES(228,NULL,0,NULL);
INSERT INTO "shard" VALUES(229,NULL,0,NULL);
INSERT INTO "shard" VALUES(230,NULL,0,NULL);
INSERT INTO "shard" VALUES(231,NULL,0,NULL);
INSERT INTO "shard" VALUES(232,NULL,0,NULL);
INSERT INTO "shard" VALUES(233,NULL,0,NULL);
INSERT INTO "shard" VALUES(234,NULL,0,NULL);
INSERT INTO "shard" VALUES(235,NULL,0,NULL);
INSERT INTO "shard" VALUES(236,NULL,0,NULL);
INSERT INTO "shard" VALUES(237,NULL,0,NULL);
INSERT INTO "shard" VALUES(238,NULL,0,NULL);
INSERT INTO "shard" VALUES(239,NULL,0,NULL);
INSERT INTO "shard" VALUES(240,NULL,0,NULL);
INSERT INTO "shard" VALUES(241,NULL,0,NULL);
INSERT INTO "shard" VALUES(242,NULL,0,NULL);
INSERT INTO "shard" VALUES(243,NULL,0,NULL);
INSERT INTO "shard" VALUES(244,NULL,0,NULL);
INSERT INTO "shard" VALUES(245,NULL,0,NULL);
INSERT INTO "shard" VALUES(246,NULL,0,NULL);
INSERT INTO "shard" VALUES(247,NULL,0,NULL);
INSERT INTO "shard" VALUES(248,NULL,0,NULL);
INSERT INTO "shard" VALUES(249,NULL,0,NULL);
INSERT INTO "shard" VALUES(250,NULL,0,NULL);
INSERT INTO "shard" VALUES(251,NULL,0,NULL);
INSERT INTO "shard" VALUES(252,NULL,0,NULL);
INSERT INTO "shard" VALUES(253,NULL,0,NULL);
INSERT INTO "shard" VALUES(254,NULL,0,NULL);
INSERT INTO "shard" VALUES(255,NULL,0,NULL);
CREATE TABLE share_weight (
    share      TEXT PRIMARY KEY,
    weight     REAL NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);
INSERT INTO "share_weight" VALUES('etl',1.0,'admin',1767268800000000);
INSERT INTO "share_weight" VALUES('web',1.0,'admin',1767268800000000);
CREATE TABLE shared_key (
    key   TEXT PRIMARY KEY,
    level REAL,
    at    INTEGER
);
INSERT INTO "shared_key" VALUES('after:default',NULL,NULL);
INSERT INTO "shared_key" VALUES('after:etl',NULL,NULL);
INSERT INTO "shared_key" VALUES('after:web',NULL,NULL);
CREATE TABLE start_delay (
    pool    TEXT NOT NULL,
    up_to   REAL NOT NULL, 
    count   INTEGER NOT NULL,
    seconds REAL NOT NULL, 
    PRIMARY KEY (pool, up_to)
) STRICT, WITHOUT ROWID;
INSERT INTO "start_delay" VALUES('default',0.01,6,0.0);
CREATE TABLE tally (
    job   TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job, state)
) STRICT, WITHOUT ROWID;
INSERT INTO "tally" VALUES('tidy','COMPLETED',3);
INSERT INTO "tally" VALUES('tidy','FAILED',3);
CREATE TABLE token (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL,
    digest       TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL,
    parent       TEXT, 
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
, pool TEXT) STRICT, WITHOUT ROWID;
INSERT INTO "token" VALUES('t_3f350c25eb37','node','viewer','f5f534f1adc4e5dd18cf20c21ceff170b69723b00369afa7dd5e6e8b98d8e3cb','worker',NULL,'test',1767268800000000,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('t_533f10d6f9b2','operator','operator','ca1ff4026bde8f29d4bc5556238bce3a48a781c2a2eada9e14186d27c14bb972','api',NULL,'test',1767268800000000,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('t_657b23f5449a','test','admin','ad2e575598c2d2f83ff14e4014b71b92f71e20d48650dcaf341cfce7f90011b0','login',NULL,'test',1767268800000000,1767312000000000,NULL,NULL,NULL);
INSERT INTO "token" VALUES('t_8a00fe2415c9','admin','admin','55af5470a0543af8f454b4f43a02fbe071a005bd5795161f5fc3039a0c7f7db9','api',NULL,'test',1767268800000000,NULL,1767268800000000,NULL,NULL);
INSERT INTO "token" VALUES('t_b27a555cf4bc','gone','admin','fcbcf57c1bd6e7ec603bd8f4b3db05e5bb282005f2c1ceb308f230f0c63cf8ed','api',NULL,'test',1767268800000000,NULL,NULL,1767268800000000,NULL);
INSERT INTO "token" VALUES('t_cd3e3d2b3fd8','editor','editor','75cccc954776f7d74ea1155c4ff833eb532032fa644e16ee2eb75e6ec2c53c3a','session','t_d587d0bcb836','editor',1767268800000000,1767873600000000,NULL,NULL,NULL);
INSERT INTO "token" VALUES('t_d587d0bcb836','editor','editor','9303d8820985b3c83acf2001443a50f63dfd64ced19252be32624e22b8b62c05','api',NULL,'test',1767268800000000,NULL,1767268800000000,NULL,NULL);
INSERT INTO "token" VALUES('t_d5d255193b25','viewer','viewer','a8c4f2f4734ee8602d2fcb42a3e79ea60fd1db0e3fe3dbe1f42603b717e235cc','api',NULL,'test',1767268800000000,NULL,NULL,NULL,NULL);
INSERT INTO "token" VALUES('t_e327278b0d3c','viewer','admin','0d364c9d05ca56efd4770d11adab0ab4a6c938c7814f159cb95afb985907a886','api',NULL,'test',1767268800000000,NULL,NULL,NULL,NULL);
CREATE TABLE unanswered (
    job_id  TEXT NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    count   INTEGER NOT NULL,
    state   TEXT NOT NULL,
    cause   TEXT NOT NULL,
    PRIMARY KEY (job_id, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE upstream_end (
    run_id   TEXT PRIMARY KEY,
    project  TEXT NOT NULL,
    job      TEXT NOT NULL,
    ended_at INTEGER NOT NULL
);
CREATE INDEX job_stuck ON job (stuck_since) WHERE stuck_since IS NOT NULL;
CREATE INDEX job_pause ON job (paused_until) WHERE paused_until IS NOT NULL;
CREATE UNIQUE INDEX job_name ON job (project, name) WHERE deleted_at IS NULL;
CREATE INDEX schedule_due ON schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_waiting ON schedule (job_id) WHERE waits = 1;
CREATE INDEX run_job ON run (job_id, seq);
CREATE INDEX run_gated ON run (gate_job, state) WHERE gate_job IS NOT NULL AND state IN
    ('SCHEDULED', 'BLOCKED', 'QUEUED', 'CLAIMED', 'PROCESSING', 'UNKNOWN');
CREATE INDEX run_queued ON run (chain, seq) WHERE state = 'QUEUED';
CREATE INDEX run_blocked ON run (blocked_on, seq) WHERE state = 'BLOCKED';
CREATE INDEX run_eligible ON run (eligible_at) WHERE state = 'SCHEDULED';
CREATE INDEX run_held ON run (session) WHERE state IN ('CLAIMED', 'PROCESSING');
CREATE INDEX run_deadline ON run (deadline_at) WHERE deadline_at IS NOT NULL AND state IN
    ('SCHEDULED', 'BLOCKED', 'QUEUED');
CREATE INDEX run_drop ON run (drop_at) WHERE drop_at IS NOT NULL AND state IN
    ('SCHEDULED', 'BLOCKED', 'QUEUED');
CREATE INDEX run_objective ON run (late_at) WHERE late_at IS NOT NULL AND is_late IS NULL;
CREATE INDEX run_backfill ON run (backfill, seq) WHERE backfill IS NOT NULL;
CREATE INDEX run_backfilled ON run (job_id, due_at) WHERE backfill IS NOT NULL;
CREATE INDEX run_unknown ON run (seq) WHERE state = 'UNKNOWN';
CREATE VIEW active_run AS
    SELECT * FROM run WHERE state = 'SCHEDULED'
    UNION ALL SELECT * FROM run WHERE state = 'BLOCKED'
    UNION ALL SELECT * FROM run WHERE state = 'QUEUED'
    UNION ALL SELECT * FROM run WHERE state IN ('CLAIMED', 'PROCESSING')
    UNION ALL SELECT * FROM run WHERE state = 'UNKNOWN';
CREATE INDEX calendar_users ON calendar_use (project, calendar);
CREATE INDEX backfill_job ON backfill (job_id);
CREATE INDEX chain_active ON chain (pool, priority, tag) WHERE active = 1;
CREATE INDEX session_alive ON session (pool) WHERE alive = 1;
CREATE VIEW current_job AS
    SELECT job.*, job_version.document, job_version.digest, schedule.next_at, schedule.held_from,
        schedule.anchor, schedule.waits, schedule.answered_to,
        schedule.version AS schedule_version,
        (SELECT state FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT 1) AS last_state,
        (SELECT ended_at FROM run WHERE job_id = job.id ORDER BY seq DESC LIMIT 1) AS last_ended_at
    FROM job
    JOIN job_version ON job_version.job_id = job.id AND job_version.version = job.version
    JOIN schedule ON schedule.job_id = job.id
    WHERE job.deleted_at IS NULL;
CREATE INDEX run_output_pending ON run (session) WHERE output_state = 'pending';
CREATE INDEX attempt_output_pending ON attempt (session) WHERE output_state = 'pending';
CREATE UNIQUE INDEX cart_live ON cart (project, name) WHERE ended_at IS NULL AND state <> 'LOADING';
CREATE INDEX cart_look ON cart (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX cart_check ON cart (check_run) WHERE check_run IS NOT NULL;
CREATE INDEX cart_open ON cart (shard) WHERE open > 0;
CREATE INDEX cart_age ON cart (created_at, id);
CREATE UNIQUE INDEX cart_item_key ON cart_item (cart, key);
CREATE INDEX cart_item_state ON cart_item (cart, state, wave, number);
CREATE INDEX cart_item_open ON cart_item (cart, state, run) WHERE state = 'OPEN';
CREATE INDEX run_cart ON run (cart, seq) WHERE cart IS NOT NULL;
CREATE INDEX cart_template_due ON cart_template (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX run_waits_for_key ON run (blocked_on, priority DESC, seq)
    WHERE state = 'BLOCKED' AND keys IS NOT NULL;
CREATE INDEX run_key_eligible ON run (eligible_at)
    WHERE state = 'BLOCKED' AND keys IS NOT NULL AND eligible_at IS NOT NULL;
CREATE INDEX session_ended ON session (pool, expires_at) WHERE alive = 0;
CREATE INDEX dependency_upstream ON dependency (project, upstream);
CREATE INDEX prediction_made ON prediction (made_at);
CREATE INDEX kept_key_until ON kept_key (until);
CREATE INDEX declaration_updated ON declaration (updated_at);
COMMIT;
