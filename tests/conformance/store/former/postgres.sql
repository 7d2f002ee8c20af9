CREATE TABLE public.run (
    seq bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    job_id text NOT NULL COLLATE pg_catalog."C",
    job text NOT NULL COLLATE pg_catalog."C",
    job_version integer NOT NULL,
    trigger text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    cause text DEFAULT ''::text NOT NULL,
    message text DEFAULT ''::text NOT NULL,
    due_at bigint NOT NULL,
    release_at bigint NOT NULL,
    eligible_at bigint,
    deadline_at bigint,
    late_at bigint,
    drop_at bigint,
    is_late integer,
    priority integer NOT NULL,
    pool text NOT NULL COLLATE pg_catalog."C",
    chain text NOT NULL COLLATE pg_catalog."C",
    shape text NOT NULL COLLATE pg_catalog."C",
    delivery text NOT NULL COLLATE pg_catalog."C",
    max_attempts integer NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    session text COLLATE pg_catalog."C",
    capacity double precision DEFAULT 0 NOT NULL,
    expected double precision NOT NULL,
    blocked_on text COLLATE pg_catalog."C",
    reasons text,
    inputs text,
    outputs text,
    progress text,
    created_by text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    queued_at bigint,
    claimed_at bigint,
    started_at bigint,
    first_started_at bigint,
    ended_at bigint,
    cancel_at bigint,
    cancel_by text DEFAULT ''::text NOT NULL,
    exit_code bigint,
    signal bigint,
    retry_of text COLLATE pg_catalog."C",
    backfill text COLLATE pg_catalog."C",
    caught_up integer DEFAULT 0 NOT NULL,
    gate_job text COLLATE pg_catalog."C",
    result text COLLATE pg_catalog."C",
    steps text,
    cpu_seconds double precision DEFAULT 0 NOT NULL,
    max_memory bigint DEFAULT 0 NOT NULL,
    output bytea,
    output_state text DEFAULT 'none'::text NOT NULL COLLATE pg_catalog."C",
    output_bytes bigint DEFAULT 0 NOT NULL,
    output_lines bigint DEFAULT 0 NOT NULL,
    truncated integer DEFAULT 0 NOT NULL,
    cart text COLLATE pg_catalog."C",
    item text COLLATE pg_catalog."C",
    keys text,
    timeout bigint,
    follows text COLLATE pg_catalog."C",
    previous_due bigint
);
CREATE VIEW public.active_run AS
 SELECT run.seq,
    run.id,
    run.project,
    run.job_id,
    run.job,
    run.job_version,
    run.trigger,
    run.state,
    run.cause,
    run.message,
    run.due_at,
    run.release_at,
    run.eligible_at,
    run.deadline_at,
    run.late_at,
    run.drop_at,
    run.is_late,
    run.priority,
    run.pool,
    run.chain,
    run.shape,
    run.delivery,
    run.max_attempts,
    run.attempt,
    run.failures,
    run.losses,
    run.session,
    run.capacity,
    run.expected,
    run.blocked_on,
    run.reasons,
    run.inputs,
    run.outputs,
    run.progress,
    run.created_by,
    run.created_at,
    run.queued_at,
    run.claimed_at,
    run.started_at,
    run.first_started_at,
    run.ended_at,
    run.cancel_at,
    run.cancel_by,
    run.exit_code,
    run.signal,
    run.retry_of,
    run.backfill,
    run.caught_up,
    run.gate_job,
    run.result,
    run.steps,
    run.cpu_seconds,
    run.max_memory,
    run.output,
    run.output_state,
    run.output_bytes,
    run.output_lines,
    run.truncated,
    run.cart,
    run.item,
    run.keys,
    run.timeout,
    run.follows,
    run.previous_due
   FROM public.run
  WHERE (run.state = 'SCHEDULED'::text)
UNION ALL
 SELECT run.seq,
    run.id,
    run.project,
    run.job_id,
    run.job,
    run.job_version,
    run.trigger,
    run.state,
    run.cause,
    run.message,
    run.due_at,
    run.release_at,
    run.eligible_at,
    run.deadline_at,
    run.late_at,
    run.drop_at,
    run.is_late,
    run.priority,
    run.pool,
    run.chain,
    run.shape,
    run.delivery,
    run.max_attempts,
    run.attempt,
    run.failures,
    run.losses,
    run.session,
    run.capacity,
    run.expected,
    run.blocked_on,
    run.reasons,
    run.inputs,
    run.outputs,
    run.progress,
    run.created_by,
    run.created_at,
    run.queued_at,
    run.claimed_at,
    run.started_at,
    run.first_started_at,
    run.ended_at,
    run.cancel_at,
    run.cancel_by,
    run.exit_code,
    run.signal,
    run.retry_of,
    run.backfill,
    run.caught_up,
    run.gate_job,
    run.result,
    run.steps,
    run.cpu_seconds,
    run.max_memory,
    run.output,
    run.output_state,
    run.output_bytes,
    run.output_lines,
    run.truncated,
    run.cart,
    run.item,
    run.keys,
    run.timeout,
    run.follows,
    run.previous_due
   FROM public.run
  WHERE (run.state = 'BLOCKED'::text)
UNION ALL
 SELECT run.seq,
    run.id,
    run.project,
    run.job_id,
    run.job,
    run.job_version,
    run.trigger,
    run.state,
    run.cause,
    run.message,
    run.due_at,
    run.release_at,
    run.eligible_at,
    run.deadline_at,
    run.late_at,
    run.drop_at,
    run.is_late,
    run.priority,
    run.pool,
    run.chain,
    run.shape,
    run.delivery,
    run.max_attempts,
    run.attempt,
    run.failures,
    run.losses,
    run.session,
    run.capacity,
    run.expected,
    run.blocked_on,
    run.reasons,
    run.inputs,
    run.outputs,
    run.progress,
    run.created_by,
    run.created_at,
    run.queued_at,
    run.claimed_at,
    run.started_at,
    run.first_started_at,
    run.ended_at,
    run.cancel_at,
    run.cancel_by,
    run.exit_code,
    run.signal,
    run.retry_of,
    run.backfill,
    run.caught_up,
    run.gate_job,
    run.result,
    run.steps,
    run.cpu_seconds,
    run.max_memory,
    run.output,
    run.output_state,
    run.output_bytes,
    run.output_lines,
    run.truncated,
    run.cart,
    run.item,
    run.keys,
    run.timeout,
    run.follows,
    run.previous_due
   FROM public.run
  WHERE (run.state = 'QUEUED'::text)
UNION ALL
 SELECT run.seq,
    run.id,
    run.project,
    run.job_id,
    run.job,
    run.job_version,
    run.trigger,
    run.state,
    run.cause,
    run.message,
    run.due_at,
    run.release_at,
    run.eligible_at,
    run.deadline_at,
    run.late_at,
    run.drop_at,
    run.is_late,
    run.priority,
    run.pool,
    run.chain,
    run.shape,
    run.delivery,
    run.max_attempts,
    run.attempt,
    run.failures,
    run.losses,
    run.session,
    run.capacity,
    run.expected,
    run.blocked_on,
    run.reasons,
    run.inputs,
    run.outputs,
    run.progress,
    run.created_by,
    run.created_at,
    run.queued_at,
    run.claimed_at,
    run.started_at,
    run.first_started_at,
    run.ended_at,
    run.cancel_at,
    run.cancel_by,
    run.exit_code,
    run.signal,
    run.retry_of,
    run.backfill,
    run.caught_up,
    run.gate_job,
    run.result,
    run.steps,
    run.cpu_seconds,
    run.max_memory,
    run.output,
    run.output_state,
    run.output_bytes,
    run.output_lines,
    run.truncated,
    run.cart,
    run.item,
    run.keys,
    run.timeout,
    run.follows,
    run.previous_due
   FROM public.run
  WHERE (run.state = ANY (ARRAY['CLAIMED'::text, 'PROCESSING'::text]))
UNION ALL
 SELECT run.seq,
    run.id,
    run.project,
    run.job_id,
    run.job,
    run.job_version,
    run.trigger,
    run.state,
    run.cause,
    run.message,
    run.due_at,
    run.release_at,
    run.eligible_at,
    run.deadline_at,
    run.late_at,
    run.drop_at,
    run.is_late,
    run.priority,
    run.pool,
    run.chain,
    run.shape,
    run.delivery,
    run.max_attempts,
    run.attempt,
    run.failures,
    run.losses,
    run.session,
    run.capacity,
    run.expected,
    run.blocked_on,
    run.reasons,
    run.inputs,
    run.outputs,
    run.progress,
    run.created_by,
    run.created_at,
    run.queued_at,
    run.claimed_at,
    run.started_at,
    run.first_started_at,
    run.ended_at,
    run.cancel_at,
    run.cancel_by,
    run.exit_code,
    run.signal,
    run.retry_of,
    run.backfill,
    run.caught_up,
    run.gate_job,
    run.result,
    run.steps,
    run.cpu_seconds,
    run.max_memory,
    run.output,
    run.output_state,
    run.output_bytes,
    run.output_lines,
    run.truncated,
    run.cart,
    run.item,
    run.keys,
    run.timeout,
    run.follows,
    run.previous_due
   FROM public.run
  WHERE (run.state = 'UNKNOWN'::text);
CREATE TABLE public.attempt (
    run_id text NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    session text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL COLLATE pg_catalog."C",
    result text NOT NULL COLLATE pg_catalog."C",
    claimed_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint NOT NULL,
    exit_code bigint,
    signal bigint,
    message text NOT NULL,
    steps text,
    cpu_seconds double precision NOT NULL,
    max_memory bigint NOT NULL,
    output bytea,
    output_state text NOT NULL COLLATE pg_catalog."C",
    output_bytes bigint NOT NULL,
    output_lines bigint NOT NULL,
    truncated integer NOT NULL
);
CREATE TABLE public.backfill (
    id text NOT NULL COLLATE pg_catalog."C",
    job_id text NOT NULL COLLATE pg_catalog."C",
    max_parallel integer NOT NULL,
    created_by text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    runs integer NOT NULL,
    first bigint,
    last bigint,
    skipped text NOT NULL
);
CREATE TABLE public.calendar (
    project text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    document text NOT NULL,
    version integer NOT NULL,
    updated_by text NOT NULL COLLATE pg_catalog."C",
    updated_at bigint NOT NULL
);
CREATE TABLE public.calendar_use (
    job_id text NOT NULL COLLATE pg_catalog."C",
    calendar text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.cart (
    id text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    shard integer NOT NULL,
    document text NOT NULL,
    rules text NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    reason text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    ending text COLLATE pg_catalog."C",
    version integer DEFAULT 1 NOT NULL,
    items integer NOT NULL,
    open integer DEFAULT 0 NOT NULL,
    completed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    cancelled integer DEFAULT 0 NOT NULL,
    skipped integer DEFAULT 0 NOT NULL,
    wave integer DEFAULT 0 NOT NULL,
    current_wave integer DEFAULT 0 NOT NULL,
    wave_items integer DEFAULT 0 NOT NULL,
    wave_failed integer DEFAULT 0 NOT NULL,
    wave_ended_at bigint,
    breach_wave integer,
    check_run text COLLATE pg_catalog."C",
    approved_by text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    look_at bigint,
    created_by text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    starts_at bigint,
    started_at bigint,
    ended_at bigint
);
CREATE TABLE public.cart_item (
    cart text NOT NULL COLLATE pg_catalog."C",
    number integer NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    wave integer NOT NULL,
    job_id text NOT NULL COLLATE pg_catalog."C",
    job_version integer NOT NULL,
    inputs text,
    state text NOT NULL COLLATE pg_catalog."C",
    run text COLLATE pg_catalog."C",
    runs integer DEFAULT 0 NOT NULL,
    cause text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.cart_template (
    project text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    document text NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    set_name text NOT NULL COLLATE pg_catalog."C",
    shard integer NOT NULL,
    next_at bigint,
    anchor bigint NOT NULL,
    updated_by text NOT NULL COLLATE pg_catalog."C",
    updated_at bigint NOT NULL
);
CREATE TABLE public.chain (
    id text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL COLLATE pg_catalog."C",
    priority integer NOT NULL,
    share text NOT NULL COLLATE pg_catalog."C",
    weight double precision DEFAULT 1 NOT NULL,
    tag double precision NOT NULL,
    active integer NOT NULL,
    group_weight double precision DEFAULT 1 NOT NULL
);
CREATE TABLE public.completion (
    project text NOT NULL COLLATE pg_catalog."C",
    job text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL
);
CREATE TABLE public.job (
    id text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    shard integer NOT NULL,
    set_name text NOT NULL COLLATE pg_catalog."C",
    created_by text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    enabled integer NOT NULL,
    paused integer DEFAULT 0 NOT NULL,
    paused_by text DEFAULT ''::text NOT NULL,
    paused_until bigint,
    finished_at bigint,
    deleted_at bigint,
    expected_seconds double precision,
    stuck_since bigint
);
CREATE TABLE public.job_version (
    job_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    document text NOT NULL,
    digest text NOT NULL COLLATE pg_catalog."C",
    rules text NOT NULL,
    created_by text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
);
CREATE TABLE public.schedule (
    job_id text NOT NULL COLLATE pg_catalog."C",
    shard integer NOT NULL,
    next_at bigint,
    held_from bigint,
    anchor bigint NOT NULL,
    version integer NOT NULL,
    waits integer DEFAULT 0 NOT NULL,
    answered_to bigint DEFAULT 0 NOT NULL
);
CREATE VIEW public.current_job AS
 SELECT job.id,
    job.project,
    job.name,
    job.version,
    job.shard,
    job.set_name,
    job.created_by,
    job.created_at,
    job.updated_at,
    job.enabled,
    job.paused,
    job.paused_by,
    job.paused_until,
    job.finished_at,
    job.deleted_at,
    job.expected_seconds,
    job.stuck_since,
    job_version.document,
    job_version.digest,
    schedule.next_at,
    schedule.held_from,
    schedule.anchor,
    schedule.waits,
    schedule.answered_to,
    schedule.version AS schedule_version,
    ( SELECT run.state
           FROM public.run
          WHERE (run.job_id = job.id)
          ORDER BY run.seq DESC
         LIMIT 1) AS last_state,
    ( SELECT run.ended_at
           FROM public.run
          WHERE (run.job_id = job.id)
          ORDER BY run.seq DESC
         LIMIT 1) AS last_ended_at
   FROM ((public.job
     JOIN public.job_version ON (((job_version.job_id = job.id) AND (job_version.version = job.version))))
     JOIN public.schedule ON ((schedule.job_id = job.id)))
  WHERE (job.deleted_at IS NULL);
CREATE TABLE public.declaration (
    kind text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    document text NOT NULL,
    updated_by text NOT NULL,
    updated_at bigint NOT NULL
);
CREATE TABLE public.dependency (
    job_id text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    upstream text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.drained_worker (
    name text NOT NULL COLLATE pg_catalog."C",
    drained_by text NOT NULL,
    drained_at bigint NOT NULL
);
CREATE TABLE public.event (
    seq bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    ids text NOT NULL,
    data text NOT NULL,
    tick bigint DEFAULT ((pg_current_xact_id())::text)::bigint NOT NULL
);
CREATE SEQUENCE public.event_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.idempotency (
    key text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    answer text NOT NULL,
    created_at bigint NOT NULL
);
CREATE TABLE public.kept_key (
    key text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    amount bigint NOT NULL,
    until bigint NOT NULL,
    waits_for text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.key_charge (
    key text NOT NULL COLLATE pg_catalog."C",
    at bigint NOT NULL,
    seq bigint NOT NULL,
    amount bigint NOT NULL
);
CREATE TABLE public.late_result (
    run_id text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    session text NOT NULL COLLATE pg_catalog."C",
    received_at bigint NOT NULL,
    result text NOT NULL COLLATE pg_catalog."C",
    message text NOT NULL
);
CREATE TABLE public.meta (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL
);
CREATE TABLE public.output_chunk (
    run_id text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    number integer NOT NULL,
    session text NOT NULL COLLATE pg_catalog."C",
    first_line bigint NOT NULL,
    lines bigint NOT NULL,
    bytes bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.pool (
    name text NOT NULL COLLATE pg_catalog."C",
    served bigint NOT NULL,
    totals text DEFAULT '{}'::text NOT NULL
);
CREATE TABLE public.prediction (
    run_id text NOT NULL COLLATE pg_catalog."C",
    made_at bigint NOT NULL,
    start_at bigint NOT NULL
);
CREATE TABLE public.rekeying (
    project text NOT NULL COLLATE pg_catalog."C",
    since bigint NOT NULL,
    after bigint NOT NULL
);
CREATE TABLE public.reservation (
    pool text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    session text NOT NULL COLLATE pg_catalog."C",
    shape text NOT NULL COLLATE pg_catalog."C",
    behind text NOT NULL,
    expires_at bigint NOT NULL
);
CREATE TABLE public.run_key (
    key text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    amount bigint NOT NULL
);
ALTER TABLE public.run ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.run_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.server (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    url text NOT NULL,
    roles text NOT NULL,
    zone text NOT NULL,
    version text NOT NULL,
    lease bigint NOT NULL,
    started_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    stopping integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.session (
    id text NOT NULL COLLATE pg_catalog."C",
    worker text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL COLLATE pg_catalog."C",
    slots integer NOT NULL,
    labels text NOT NULL,
    functions text NOT NULL,
    guard_mode text NOT NULL COLLATE pg_catalog."C",
    version text NOT NULL COLLATE pg_catalog."C",
    lease bigint NOT NULL,
    registered_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    beats bigint DEFAULT 0 NOT NULL,
    alive integer DEFAULT 1 NOT NULL,
    stopping integer DEFAULT 0 NOT NULL,
    server text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    stream integer DEFAULT 1 NOT NULL,
    resources text DEFAULT '{}'::text NOT NULL,
    offers text DEFAULT '[]'::text NOT NULL,
    trouble text DEFAULT ''::text NOT NULL
);
CREATE TABLE public.shape (
    id text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.shard (
    number integer NOT NULL,
    owner text COLLATE pg_catalog."C",
    epoch bigint DEFAULT 0 NOT NULL,
    taken_at bigint
);
CREATE TABLE public.share_weight (
    share text NOT NULL COLLATE pg_catalog."C",
    weight double precision NOT NULL,
    updated_by text NOT NULL,
    updated_at bigint NOT NULL
);
CREATE TABLE public.shared_key (
    key text NOT NULL COLLATE pg_catalog."C",
    level double precision,
    at bigint
);
CREATE TABLE public.start_delay (
    pool text NOT NULL COLLATE pg_catalog."C",
    up_to double precision NOT NULL,
    count bigint NOT NULL,
    seconds double precision NOT NULL
);
CREATE TABLE public.tally (
    job text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    count bigint NOT NULL
);
CREATE TABLE public.token (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    parent text COLLATE pg_catalog."C",
    created_by text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint,
    pool text COLLATE pg_catalog."C"
);
CREATE TABLE public.unanswered (
    job_id text NOT NULL COLLATE pg_catalog."C",
    first bigint NOT NULL,
    last bigint NOT NULL,
    count bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    cause text NOT NULL
);
CREATE TABLE public.upstream_end (
    run_id text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL COLLATE pg_catalog."C",
    job text NOT NULL COLLATE pg_catalog."C",
    ended_at bigint NOT NULL
);
INSERT INTO public.calendar VALUES ('default', 'nights', '{"name":"nights","windows":["daily 22:00-06:00"],"timezone":"UTC","holidays":null,"inside":"skip"}', 1, 'admin', 1767268800000000);
INSERT INTO public.calendar VALUES ('etl', 'nights', '{"name":"nights","windows":["daily 22:00-06:00"],"timezone":"UTC","holidays":null,"inside":"skip"}', 1, 'admin', 1767268800000000);
INSERT INTO public.calendar VALUES ('web', 'nights', '{"name":"nights","windows":["daily 22:00-06:00"],"timezone":"UTC","holidays":null,"inside":"skip"}', 1, 'admin', 1767268800000000);
INSERT INTO public.calendar_use VALUES ('j_r4syrp5v73vc', 'nights', 'default');
INSERT INTO public.calendar_use VALUES ('j_gegyz3axe41x', 'nights', 'etl');
INSERT INTO public.calendar_use VALUES ('j_sh8g71s9pkq3', 'nights', 'web');
INSERT INTO public.cart VALUES ('c_gbvqd8x8wk6c', 'default', 'rollout', 130, '{"job":"tidy","description":"","labels":{},"rollback":"","priority":null}', '{"order":"serial","group_size":[],"max_parallel":1,"failures":{"allow":"0","of":"cart","then":"pause","strict":false},"between":{"wait":"0s","check":"","approve":""},"calendars":[]}', 'PLANNED', '', NULL, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, '', 1767268800000000, 'admin', 1767268800000000, NULL, NULL, NULL);
INSERT INTO public.cart VALUES ('c_hns3kddsedk8', 'etl', 'rollout', 49, '{"job":"tidy","description":"","labels":{},"rollback":"","priority":null}', '{"order":"serial","group_size":[],"max_parallel":1,"failures":{"allow":"0","of":"cart","then":"pause","strict":false},"between":{"wait":"0s","check":"","approve":""},"calendars":[]}', 'PLANNED', '', NULL, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, '', 1767268800000000, 'admin', 1767268800000000, NULL, NULL, NULL);
INSERT INTO public.cart VALUES ('c_br0v4f3hxsd5', 'web', 'rollout', 205, '{"job":"tidy","description":"","labels":{},"rollback":"","priority":null}', '{"order":"serial","group_size":[],"max_parallel":1,"failures":{"allow":"0","of":"cart","then":"pause","strict":false},"between":{"wait":"0s","check":"","approve":""},"calendars":[]}', 'PLANNED', '', NULL, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, '', 1767268800000000, 'admin', 1767268800000000, NULL, NULL, NULL);
INSERT INTO public.cart_item VALUES ('c_gbvqd8x8wk6c', 0, 'a', 1, 'j_c35jrpazq4s2', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_gbvqd8x8wk6c', 1, 'b', 2, 'j_c35jrpazq4s2', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_gbvqd8x8wk6c', 2, 'c', 3, 'j_c35jrpazq4s2', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_hns3kddsedk8', 0, 'a', 1, 'j_dk7h0egqmj8x', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_hns3kddsedk8', 1, 'b', 2, 'j_dk7h0egqmj8x', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_hns3kddsedk8', 2, 'c', 3, 'j_dk7h0egqmj8x', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_br0v4f3hxsd5', 0, 'a', 1, 'j_16mjdpgsgs09', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_br0v4f3hxsd5', 1, 'b', 2, 'j_16mjdpgsgs09', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_item VALUES ('c_br0v4f3hxsd5', 2, 'c', 3, 'j_16mjdpgsgs09', 1, NULL, 'PENDING', NULL, 0, '');
INSERT INTO public.cart_template VALUES ('default', 'fleet', 1, '{"name":"fleet","job":"tidy","items":[{"key":"a"}]}', 'cf0049bda37a36ef', 'all', 5, NULL, 1767268800000000, 'admin', 1767268800000000);
INSERT INTO public.cart_template VALUES ('etl', 'fleet', 1, '{"name":"fleet","job":"tidy","items":[{"key":"a"}]}', 'cf0049bda37a36ef', 'all', 5, NULL, 1767268800000000, 'admin', 1767268800000000);
INSERT INTO public.cart_template VALUES ('web', 'fleet', 1, '{"name":"fleet","job":"tidy","items":[{"key":"a"}]}', 'cf0049bda37a36ef', 'all', 100, NULL, 1767268800000000, 'admin', 1767268800000000);
INSERT INTO public.chain VALUES ('gpu/5/default/admin', 'gpu', 5, 'default/admin', 1, 0, 1, 1);
INSERT INTO public.chain VALUES ('gpu/5/etl/admin', 'gpu', 5, 'etl/admin', 1, 0, 1, 1);
INSERT INTO public.chain VALUES ('gpu/5/web/admin', 'gpu', 5, 'web/admin', 1, 0, 1, 1);
INSERT INTO public.chain VALUES ('default/5/default/admin', 'default', 5, 'default/admin', 1, 8.999999999999674e-05, 1, 1);
INSERT INTO public.chain VALUES ('default/5/etl/admin', 'default', 5, 'etl/admin', 1, 8.999999999999674e-05, 1, 1);
INSERT INTO public.chain VALUES ('default/5/web/admin', 'default', 5, 'web/admin', 1, 8.999999999999674e-05, 1, 1);
INSERT INTO public.declaration VALUES ('rate', 'default', 'calls', '{"project":"default","name":"calls","tokens":5,"per":"PT60S","burst":5,"each":""}', 'admin', 1767268800000000);
INSERT INTO public.declaration VALUES ('resource', 'default', 'license', '{"project":"default","name":"license","total":2,"sharing":"counted"}', 'admin', 1767268800000000);
INSERT INTO public.declaration VALUES ('rate', 'etl', 'calls', '{"project":"etl","name":"calls","tokens":5,"per":"PT60S","burst":5,"each":""}', 'admin', 1767268800000000);
INSERT INTO public.declaration VALUES ('resource', 'etl', 'license', '{"project":"etl","name":"license","total":2,"sharing":"counted"}', 'admin', 1767268800000000);
INSERT INTO public.declaration VALUES ('rate', 'web', 'calls', '{"project":"web","name":"calls","tokens":5,"per":"PT60S","burst":5,"each":""}', 'admin', 1767268800000000);
INSERT INTO public.declaration VALUES ('resource', 'web', 'license', '{"project":"web","name":"license","total":2,"sharing":"counted"}', 'admin', 1767268800000000);
INSERT INTO public.dependency VALUES ('j_4nxdyxb8t9qk', 'default', 'nightly');
INSERT INTO public.dependency VALUES ('j_4eb71ew70dgp', 'etl', 'nightly');
INSERT INTO public.dependency VALUES ('j_rvazyqkbycpf', 'web', 'nightly');
INSERT INTO public.event VALUES (47972353, 'token.created', 1767268800000000, 'test', '', '["t_ed1c8708a3a5"]', '{"kind":"api"}', 732);
INSERT INTO public.event VALUES (48037890, 'token.created', 1767268800000000, 'test', '', '["t_b6115cb95c59"]', '{"kind":"api"}', 733);
INSERT INTO public.event VALUES (48103427, 'token.created', 1767268800000000, 'test', '', '["t_9706245c7640"]', '{"kind":"api"}', 734);
INSERT INTO public.event VALUES (48168964, 'token.created', 1767268800000000, 'test', '', '["t_df39880a2ba9"]', '{"kind":"api"}', 735);
INSERT INTO public.event VALUES (48234501, 'token.created', 1767268800000000, 'test', '', '["t_ba09b526eace"]', '{"kind":"api"}', 736);
INSERT INTO public.event VALUES (48300038, 'token.created', 1767268800000000, 'test', '', '["t_a7186e2a3b14"]', '{"kind":"worker"}', 737);
INSERT INTO public.event VALUES (48365575, 'token.created', 1767268800000000, 'test', '', '["t_616bec2c01d0"]', '{"kind":"api"}', 738);
INSERT INTO public.event VALUES (48431112, 'token.revoked', 1767268800000000, 'test', '', '["t_616bec2c01d0"]', '{}', 739);
INSERT INTO public.event VALUES (48562185, 'token.created', 1767268800000000, 'editor', '', '["t_674bf8bf5b57"]', '{"kind":"session"}', 741);
INSERT INTO public.event VALUES (48627722, 'token.created', 1767268800000000, 'test', '', '["t_443957af90b4"]', '{"kind":"login"}', 742);
INSERT INTO public.event VALUES (48693259, 'worker.registered', 1767268800000000, 'node', '', '["w_bx368x4t01sw"]', '{"pool":"default"}', 743);
INSERT INTO public.event VALUES (48824332, 'cart.defined', 1767268800000000, 'admin', '', '["fleet"]', '{}', 745);
INSERT INTO public.event VALUES (48824333, 'calendar.created', 1767268800000000, 'admin', 'default', '["nights"]', '{}', 745);
INSERT INTO public.event VALUES (48824334, 'limit.saved', 1767268800000000, 'admin', 'default', '[]', '{"name":"calls"}', 745);
INSERT INTO public.event VALUES (48824335, 'resource.saved', 1767268800000000, 'admin', 'default', '[]', '{"name":"license"}', 745);
INSERT INTO public.event VALUES (48824336, 'job.created', 1767268800000000, 'admin', '', '["j_fh640t3ay7n0","j_q9dc9mpf5b7q","j_k1d7p5g62xk4","j_r4syrp5v73vc","j_kyg2x8rqdmrk","j_4nxdyxb8t9qk","j_c35jrpazq4s2"]', '{}', 745);
INSERT INTO public.event VALUES (48889873, 'job.deleted', 1767268800000000, 'admin', '', '["j_fh640t3ay7n0"]', '{"names":["dropped"]}', 746);
INSERT INTO public.event VALUES (48955410, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw00a2vhjfaakpajv"]', '{}', 747);
INSERT INTO public.event VALUES (49020947, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw00ce68hk8f02a6w"]', '{}', 748);
INSERT INTO public.event VALUES (49086484, 'run.claimed', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00a2vhjfaakpajv","r_1j7a9agqw00ce68hk8f02a6w"]', '{}', 749);
INSERT INTO public.event VALUES (49152021, 'run.started', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00a2vhjfaakpajv","r_1j7a9agqw00ce68hk8f02a6w"]', '{}', 750);
INSERT INTO public.event VALUES (49217558, 'run.finished', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00a2vhjfaakpajv"]', '{"state":"COMPLETED","cause":"","attempts":[1]}', 751);
INSERT INTO public.event VALUES (49283095, 'run.finished', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00ce68hk8f02a6w"]', '{"state":"FAILED","cause":"exit 1","attempts":[1]}', 752);
INSERT INTO public.event VALUES (49348632, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw00b5hxxxjxn84hc"]', '{}', 753);
INSERT INTO public.event VALUES (49414169, 'run.claimed', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00b5hxxxjxn84hc"]', '{}', 754);
INSERT INTO public.event VALUES (49479706, 'run.started', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00b5hxxxjxn84hc"]', '{}', 755);
INSERT INTO public.event VALUES (49545243, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw006pw46a2bb2eav"]', '{}', 756);
INSERT INTO public.event VALUES (49741852, 'cart.submitted', 1767268800000000, 'admin', '', '["c_gbvqd8x8wk6c"]', '{"name":"rollout","items":3}', 759);
INSERT INTO public.event VALUES (49807389, 'cart.defined', 1767268800000000, 'admin', '', '["fleet"]', '{}', 760);
INSERT INTO public.event VALUES (49807390, 'calendar.created', 1767268800000000, 'admin', 'etl', '["nights"]', '{}', 760);
INSERT INTO public.event VALUES (49807391, 'limit.saved', 1767268800000000, 'admin', 'etl', '[]', '{"name":"calls"}', 760);
INSERT INTO public.event VALUES (49807392, 'resource.saved', 1767268800000000, 'admin', 'etl', '[]', '{"name":"license"}', 760);
INSERT INTO public.event VALUES (49807393, 'share.weighted', 1767268800000000, 'admin', '', '["etl"]', '{"weight":1.0}', 760);
INSERT INTO public.event VALUES (49807394, 'job.created', 1767268800000000, 'admin', '', '["j_9ad9y6wx9sn9","j_qqqgeyv8xqn8","j_87ntybp3aswv","j_gegyz3axe41x","j_1wefyjg0k7bp","j_4eb71ew70dgp","j_dk7h0egqmj8x"]', '{}', 760);
INSERT INTO public.event VALUES (49872931, 'job.deleted', 1767268800000000, 'admin', '', '["j_9ad9y6wx9sn9"]', '{"names":["dropped"]}', 761);
INSERT INTO public.event VALUES (49938468, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw0002x68w3zr06sd"]', '{}', 762);
INSERT INTO public.event VALUES (50004005, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw00a6k5jadd8zyeh"]', '{}', 763);
INSERT INTO public.event VALUES (50069542, 'run.claimed', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw0002x68w3zr06sd","r_1j7a9agqw00a6k5jadd8zyeh"]', '{}', 764);
INSERT INTO public.event VALUES (50135079, 'run.started', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw0002x68w3zr06sd","r_1j7a9agqw00a6k5jadd8zyeh"]', '{}', 765);
INSERT INTO public.event VALUES (50200616, 'run.finished', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw0002x68w3zr06sd"]', '{"state":"COMPLETED","cause":"","attempts":[1]}', 766);
INSERT INTO public.event VALUES (50266153, 'run.finished', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00a6k5jadd8zyeh"]', '{"state":"FAILED","cause":"exit 1","attempts":[1]}', 767);
INSERT INTO public.event VALUES (50331690, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw005d2gp5vxzmcgq"]', '{}', 768);
INSERT INTO public.event VALUES (50397227, 'run.claimed', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw005d2gp5vxzmcgq"]', '{}', 769);
INSERT INTO public.event VALUES (50462764, 'run.started', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw005d2gp5vxzmcgq"]', '{}', 770);
INSERT INTO public.event VALUES (50528301, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw009m9drcrfx39rr"]', '{}', 771);
INSERT INTO public.event VALUES (50724910, 'cart.submitted', 1767268800000000, 'admin', '', '["c_hns3kddsedk8"]', '{"name":"rollout","items":3}', 774);
INSERT INTO public.event VALUES (50790447, 'cart.defined', 1767268800000000, 'admin', '', '["fleet"]', '{}', 775);
INSERT INTO public.event VALUES (50790448, 'calendar.created', 1767268800000000, 'admin', 'web', '["nights"]', '{}', 775);
INSERT INTO public.event VALUES (50790449, 'limit.saved', 1767268800000000, 'admin', 'web', '[]', '{"name":"calls"}', 775);
INSERT INTO public.event VALUES (50790450, 'resource.saved', 1767268800000000, 'admin', 'web', '[]', '{"name":"license"}', 775);
INSERT INTO public.event VALUES (50790451, 'share.weighted', 1767268800000000, 'admin', '', '["web"]', '{"weight":1.0}', 775);
INSERT INTO public.event VALUES (50790452, 'job.created', 1767268800000000, 'admin', '', '["j_s1pt4w0mzpyf","j_wcsf1ag0x7jg","j_kge72xd1n9dy","j_sh8g71s9pkq3","j_h9mf12vt8dn1","j_rvazyqkbycpf","j_16mjdpgsgs09"]', '{}', 775);
INSERT INTO public.event VALUES (50855989, 'job.deleted', 1767268800000000, 'admin', '', '["j_s1pt4w0mzpyf"]', '{"names":["dropped"]}', 776);
INSERT INTO public.event VALUES (50921526, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw005qye5kwxptmv7"]', '{}', 777);
INSERT INTO public.event VALUES (50987063, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw002mjbzx0v5pn3q"]', '{}', 778);
INSERT INTO public.event VALUES (51052600, 'run.claimed', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw005qye5kwxptmv7","r_1j7a9agqw002mjbzx0v5pn3q"]', '{}', 779);
INSERT INTO public.event VALUES (51118137, 'run.started', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw005qye5kwxptmv7","r_1j7a9agqw002mjbzx0v5pn3q"]', '{}', 780);
INSERT INTO public.event VALUES (51183674, 'run.finished', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw005qye5kwxptmv7"]', '{"state":"COMPLETED","cause":"","attempts":[1]}', 781);
INSERT INTO public.event VALUES (51249211, 'run.finished', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw002mjbzx0v5pn3q"]', '{"state":"FAILED","cause":"exit 1","attempts":[1]}', 782);
INSERT INTO public.event VALUES (51314748, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw00fprd68ywrp7ay"]', '{}', 783);
INSERT INTO public.event VALUES (51380285, 'run.claimed', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00fprd68ywrp7ay"]', '{}', 784);
INSERT INTO public.event VALUES (51445822, 'run.started', 1767268800000000, 'w_bx368x4t01sw', '', '["r_1j7a9agqw00fprd68ywrp7ay"]', '{}', 785);
INSERT INTO public.event VALUES (51511359, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw0021238qvgtm2x5"]', '{}', 786);
INSERT INTO public.event VALUES (51707968, 'cart.submitted', 1767268800000000, 'admin', '', '["c_br0v4f3hxsd5"]', '{"name":"rollout","items":3}', 789);
INSERT INTO public.event VALUES (51773505, 'job.paused', 1767268800000000, 'admin', '', '["j_h9mf12vt8dn1"]', '{}', 790);
INSERT INTO public.event VALUES (51839042, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw007k7tqymhd3qjw"]', '{}', 791);
INSERT INTO public.event VALUES (51904579, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw003cnwj8g933mdp"]', '{}', 792);
INSERT INTO public.event VALUES (51970116, 'run.queued', 1767268800000000, 'admin', '', '["r_1j7a9agqw0018zaw1etb10bf"]', '{}', 793);
INSERT INTO public.job VALUES ('j_q9dc9mpf5b7q', 'default', 'far', 1, 104, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_k1d7p5g62xk4', 'default', 'limited', 1, 127, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_r4syrp5v73vc', 'default', 'night-only', 1, 180, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_kyg2x8rqdmrk', 'default', 'nightly', 1, 76, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_4nxdyxb8t9qk', 'default', 'report', 1, 30, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_fh640t3ay7n0', 'default', 'dropped', 1, 73, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, 1767268800000000, NULL, NULL);
INSERT INTO public.job VALUES ('j_c35jrpazq4s2', 'default', 'tidy', 1, 58, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, 0, NULL);
INSERT INTO public.job VALUES ('j_qqqgeyv8xqn8', 'etl', 'far', 1, 131, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_87ntybp3aswv', 'etl', 'limited', 1, 200, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_gegyz3axe41x', 'etl', 'night-only', 1, 19, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_1wefyjg0k7bp', 'etl', 'nightly', 1, 133, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_4eb71ew70dgp', 'etl', 'report', 1, 247, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_9ad9y6wx9sn9', 'etl', 'dropped', 1, 148, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, 1767268800000000, NULL, NULL);
INSERT INTO public.job VALUES ('j_dk7h0egqmj8x', 'etl', 'tidy', 1, 233, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, 0, NULL);
INSERT INTO public.job VALUES ('j_wcsf1ag0x7jg', 'web', 'far', 1, 9, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_kge72xd1n9dy', 'web', 'limited', 1, 80, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_sh8g71s9pkq3', 'web', 'night-only', 1, 48, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_rvazyqkbycpf', 'web', 'report', 1, 162, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job VALUES ('j_s1pt4w0mzpyf', 'web', 'dropped', 1, 141, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, 1767268800000000, NULL, NULL);
INSERT INTO public.job VALUES ('j_16mjdpgsgs09', 'web', 'tidy', 1, 76, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 0, '', NULL, NULL, NULL, 0, NULL);
INSERT INTO public.job VALUES ('j_h9mf12vt8dn1', 'web', 'nightly', 1, 216, 'all', 'admin', 1767268800000000, 1767268800000000, 1, 1, 'admin', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job_version VALUES ('j_fh640t3ay7n0', 1, '{"name":"dropped","project":"default","steps":[{"run":"true"}]}', '6467fa58dedc2666', '{"name":"dropped","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_q9dc9mpf5b7q', 1, '{"name":"far","project":"default","steps":[{"run":"true"}],"pool":"gpu"}', 'acf2c638d2ad0cc2', '{"name":"far","project":"default","pool":"gpu","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_k1d7p5g62xk4', 1, '{"name":"limited","project":"default","steps":[{"run":"true"}],"rate_limits":[{"name":"calls"}]}', '4ed9be367aceb39e', '{"name":"limited","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{"calls":1},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_r4syrp5v73vc', 1, '{"name":"night-only","project":"default","schedule":"every 10m","calendars":["nights"],"steps":[{"run":"true"}]}', 'c367e715e312e66e', '{"name":"night-only","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_kyg2x8rqdmrk', 1, '{"name":"nightly","project":"default","schedule":"every 1h","overlap":"allow","steps":[{"run":"true"}]}', 'e2af570c9ba4b9cb', '{"name":"nightly","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"allow","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_4nxdyxb8t9qk', 1, '{"name":"report","project":"default","schedule":"every 1h","steps":[{"run":"true"}],"after":{"jobs":["nightly"]}}', 'e65e31a35cd91338', '{"name":"report","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":["nightly"],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_c35jrpazq4s2', 1, '{"name":"tidy","project":"default","max_concurrency":9,"steps":[{"run":"true"}]}', '9b1811a3bc4b22cf', '{"name":"tidy","project":"default","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":9,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_9ad9y6wx9sn9', 1, '{"name":"dropped","project":"etl","steps":[{"run":"true"}]}', '3ac817a9bd3ce885', '{"name":"dropped","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_qqqgeyv8xqn8', 1, '{"name":"far","project":"etl","steps":[{"run":"true"}],"pool":"gpu"}', 'eddbfff0ee946137', '{"name":"far","project":"etl","pool":"gpu","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_87ntybp3aswv', 1, '{"name":"limited","project":"etl","steps":[{"run":"true"}],"rate_limits":[{"name":"calls"}]}', '201254f8bd95b8db', '{"name":"limited","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{"calls":1},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_gegyz3axe41x', 1, '{"name":"night-only","project":"etl","schedule":"every 10m","calendars":["nights"],"steps":[{"run":"true"}]}', '38a51d1a6ee53256', '{"name":"night-only","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_1wefyjg0k7bp', 1, '{"name":"nightly","project":"etl","schedule":"every 1h","overlap":"allow","steps":[{"run":"true"}]}', '1add32e10a94c1e3', '{"name":"nightly","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"allow","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_4eb71ew70dgp', 1, '{"name":"report","project":"etl","schedule":"every 1h","steps":[{"run":"true"}],"after":{"jobs":["nightly"]}}', 'e6589c444799b344', '{"name":"report","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":["nightly"],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_dk7h0egqmj8x', 1, '{"name":"tidy","project":"etl","max_concurrency":9,"steps":[{"run":"true"}]}', '815cbd5fa82e99ee', '{"name":"tidy","project":"etl","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":9,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_s1pt4w0mzpyf', 1, '{"name":"dropped","project":"web","steps":[{"run":"true"}]}', 'a11a97224f2a69d0', '{"name":"dropped","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_wcsf1ag0x7jg', 1, '{"name":"far","project":"web","steps":[{"run":"true"}],"pool":"gpu"}', 'a7345ad9dc964a35', '{"name":"far","project":"web","pool":"gpu","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_kge72xd1n9dy', 1, '{"name":"limited","project":"web","steps":[{"run":"true"}],"rate_limits":[{"name":"calls"}]}', '614fe942f57c9666', '{"name":"limited","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{"calls":1},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_sh8g71s9pkq3', 1, '{"name":"night-only","project":"web","schedule":"every 10m","calendars":["nights"],"steps":[{"run":"true"}]}', '0f5b20e2b6750d30', '{"name":"night-only","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_h9mf12vt8dn1', 1, '{"name":"nightly","project":"web","schedule":"every 1h","overlap":"allow","steps":[{"run":"true"}]}', 'fc00a9e2b67ac6d7', '{"name":"nightly","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"allow","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_rvazyqkbycpf', 1, '{"name":"report","project":"web","schedule":"every 1h","steps":[{"run":"true"}],"after":{"jobs":["nightly"]}}', '089ae3eb247e13e9', '{"name":"report","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":null,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":["nightly"],"after_within":null,"is_scheduled":true}', 'admin', 1767268800000000);
INSERT INTO public.job_version VALUES ('j_16mjdpgsgs09', 1, '{"name":"tidy","project":"web","max_concurrency":9,"steps":[{"run":"true"}]}', 'f86cab293400773a', '{"name":"tidy","project":"web","pool":"default","priority":5,"share":"","needs":{},"function":"","overlap":"queue_one","max_concurrency":9,"delivery":"at_least_once","retry":{"attempts":1,"backoff":"fixed","delay":"P0D","max_delay":"PT300S","jitter":0.0,"when":["timed_out","failed"],"exit_codes":null},"max_losses":3,"deadline":null,"start_within":null,"late":"run","expect":null,"timeout":null,"resources":{},"uses":{},"rate_limits":{},"exclusive_by":[],"exclusive_defaults":{},"after":[],"after_within":null,"is_scheduled":false}', 'admin', 1767268800000000);
INSERT INTO public.meta VALUES ('schema', '8');
INSERT INTO public.pool VALUES ('default', 9, '{"slots":100000}');
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (1, 'r_1j7a9agqw00a2vhjfaakpajv', 'default', 'j_c35jrpazq4s2', 'tidy', 1, 'manual', 'COMPLETED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/default/admin', '', 'at_least_once', 1, 1, 0, 0, 'w_bx368x4t01sw', 0.01, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, '', 0, NULL, NULL, NULL, 0, 'j_c35jrpazq4s2', 'COMPLETED', NULL, 0, 0, '\x31303030207374646f757420317c646f6e650a', 'inline', 5, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (2, 'r_1j7a9agqw00ce68hk8f02a6w', 'default', 'j_c35jrpazq4s2', 'tidy', 1, 'manual', 'FAILED', 'exit 1', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/default/admin', '', 'at_least_once', 1, 1, 1, 0, 'w_bx368x4t01sw', 0.01, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, '', 1, NULL, NULL, NULL, 0, 'j_c35jrpazq4s2', 'FAILED', NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (3, 'r_1j7a9agqw00b5hxxxjxn84hc', 'default', 'j_c35jrpazq4s2', 'tidy', 1, 'manual', 'PROCESSING', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/default/admin', '', 'at_least_once', 1, 1, 0, 0, 'w_bx368x4t01sw', 0.01, 0.001, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 'j_c35jrpazq4s2', NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (4, 'r_1j7a9agqw006pw46a2bb2eav', 'default', 'j_q9dc9mpf5b7q', 'far', 1, 'manual', 'QUEUED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'gpu', 'gpu/5/default/admin', '', 'at_least_once', 1, 0, 0, 0, NULL, 0, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (5, 'r_1j7a9agqw0002x68w3zr06sd', 'etl', 'j_dk7h0egqmj8x', 'tidy', 1, 'manual', 'COMPLETED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/etl/admin', '', 'at_least_once', 1, 1, 0, 0, 'w_bx368x4t01sw', 0.01, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, '', 0, NULL, NULL, NULL, 0, 'j_dk7h0egqmj8x', 'COMPLETED', NULL, 0, 0, '\x31303030207374646f757420317c646f6e650a', 'inline', 5, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (6, 'r_1j7a9agqw00a6k5jadd8zyeh', 'etl', 'j_dk7h0egqmj8x', 'tidy', 1, 'manual', 'FAILED', 'exit 1', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/etl/admin', '', 'at_least_once', 1, 1, 1, 0, 'w_bx368x4t01sw', 0.01, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, '', 1, NULL, NULL, NULL, 0, 'j_dk7h0egqmj8x', 'FAILED', NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (7, 'r_1j7a9agqw005d2gp5vxzmcgq', 'etl', 'j_dk7h0egqmj8x', 'tidy', 1, 'manual', 'PROCESSING', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/etl/admin', '', 'at_least_once', 1, 1, 0, 0, 'w_bx368x4t01sw', 0.01, 0.001, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 'j_dk7h0egqmj8x', NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (8, 'r_1j7a9agqw009m9drcrfx39rr', 'etl', 'j_qqqgeyv8xqn8', 'far', 1, 'manual', 'QUEUED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'gpu', 'gpu/5/etl/admin', '', 'at_least_once', 1, 0, 0, 0, NULL, 0, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (9, 'r_1j7a9agqw005qye5kwxptmv7', 'web', 'j_16mjdpgsgs09', 'tidy', 1, 'manual', 'COMPLETED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/web/admin', '', 'at_least_once', 1, 1, 0, 0, 'w_bx368x4t01sw', 0.01, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, '', 0, NULL, NULL, NULL, 0, 'j_16mjdpgsgs09', 'COMPLETED', NULL, 0, 0, '\x31303030207374646f757420317c646f6e650a', 'inline', 5, 1, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (10, 'r_1j7a9agqw002mjbzx0v5pn3q', 'web', 'j_16mjdpgsgs09', 'tidy', 1, 'manual', 'FAILED', 'exit 1', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/web/admin', '', 'at_least_once', 1, 1, 1, 0, 'w_bx368x4t01sw', 0.01, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, '', 1, NULL, NULL, NULL, 0, 'j_16mjdpgsgs09', 'FAILED', NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (11, 'r_1j7a9agqw00fprd68ywrp7ay', 'web', 'j_16mjdpgsgs09', 'tidy', 1, 'manual', 'PROCESSING', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/web/admin', '', 'at_least_once', 1, 1, 0, 0, 'w_bx368x4t01sw', 0.01, 0.001, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, 1767268800000000, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 'j_16mjdpgsgs09', NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (12, 'r_1j7a9agqw0021238qvgtm2x5', 'web', 'j_wcsf1ag0x7jg', 'far', 1, 'manual', 'QUEUED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'gpu', 'gpu/5/web/admin', '', 'at_least_once', 1, 0, 0, 0, NULL, 0, 1, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (13, 'r_1j7a9agqw007k7tqymhd3qjw', 'default', 'j_c35jrpazq4s2', 'tidy', 1, 'manual', 'QUEUED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/default/admin', '', 'at_least_once', 1, 0, 0, 0, NULL, 0, 0.001, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 'j_c35jrpazq4s2', NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (14, 'r_1j7a9agqw003cnwj8g933mdp', 'etl', 'j_dk7h0egqmj8x', 'tidy', 1, 'manual', 'QUEUED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/etl/admin', '', 'at_least_once', 1, 0, 0, 0, NULL, 0, 0.001, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 'j_dk7h0egqmj8x', NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.run OVERRIDING SYSTEM VALUE VALUES (15, 'r_1j7a9agqw0018zaw1etb10bf', 'web', 'j_16mjdpgsgs09', 'tidy', 1, 'manual', 'QUEUED', '', '', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, 5, 'default', 'default/5/web/admin', '', 'at_least_once', 1, 0, 0, 0, NULL, 0, 0.001, NULL, NULL, NULL, NULL, NULL, 'admin', 1767268800000000, 1767268800000000, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 'j_16mjdpgsgs09', NULL, NULL, 0, 0, NULL, 'none', 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.schedule VALUES ('j_q9dc9mpf5b7q', 104, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_k1d7p5g62xk4', 127, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_r4syrp5v73vc', 180, 1767269400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_kyg2x8rqdmrk', 76, 1767272400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_4nxdyxb8t9qk', 30, 1767272400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_c35jrpazq4s2', 58, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_fh640t3ay7n0', 73, NULL, NULL, 1767268800000000, 2, 0, 0);
INSERT INTO public.schedule VALUES ('j_qqqgeyv8xqn8', 131, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_87ntybp3aswv', 200, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_gegyz3axe41x', 19, 1767269400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_1wefyjg0k7bp', 133, 1767272400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_4eb71ew70dgp', 247, 1767272400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_dk7h0egqmj8x', 233, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_9ad9y6wx9sn9', 148, NULL, NULL, 1767268800000000, 2, 0, 0);
INSERT INTO public.schedule VALUES ('j_wcsf1ag0x7jg', 9, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_kge72xd1n9dy', 80, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_sh8g71s9pkq3', 48, 1767269400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_rvazyqkbycpf', 162, 1767272400000000, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_16mjdpgsgs09', 76, NULL, NULL, 1767268800000000, 1, 0, 0);
INSERT INTO public.schedule VALUES ('j_s1pt4w0mzpyf', 141, NULL, NULL, 1767268800000000, 2, 0, 0);
INSERT INTO public.schedule VALUES ('j_h9mf12vt8dn1', 216, NULL, 1767272400000000, 1767268800000000, 2, 0, 0);
INSERT INTO public.session VALUES ('w_bx368x4t01sw', 'node', 'default', 100, '{}', '[]', '', '', 30000000, 1767268800000000, 1767268830000000, 0, 1, 0, '', 1, '{}', '[]', '');
INSERT INTO public.shape VALUES ('');
INSERT INTO public.shard VALUES (0, NULL, 0, NULL);
INSERT INTO public.shard VALUES (1, NULL, 0, NULL);
INSERT INTO public.shard VALUES (2, NULL, 0, NULL);
INSERT INTO public.shard VALUES (3, NULL, 0, NULL);
INSERT INTO public.shard VALUES (4, NULL, 0, NULL);
INSERT INTO public.shard VALUES (5, NULL, 0, NULL);
INSERT INTO public.shard VALUES (6, NULL, 0, NULL);
INSERT INTO public.shard VALUES (7, NULL, 0, NULL);
INSERT INTO public.shard VALUES (8, NULL, 0, NULL);
INSERT INTO public.shard VALUES (9, NULL, 0, NULL);
INSERT INTO public.shard VALUES (10, NULL, 0, NULL);
INSERT INTO public.shard VALUES (11, NULL, 0, NULL);
INSERT INTO public.shard VALUES (12, NULL, 0, NULL);
INSERT INTO public.shard VALUES (13, NULL, 0, NULL);
INSERT INTO public.shard VALUES (14, NULL, 0, NULL);
INSERT INTO public.shard VALUES (15, NULL, 0, NULL);
INSERT INTO public.shard VALUES (16, NULL, 0, NULL);
INSERT INTO public.shard VALUES (17, NULL, 0, NULL);
INSERT INTO public.shard VALUES (18, NULL, 0, NULL);
INSERT INTO public.shard VALUES (19, NULL, 0, NULL);
INSERT INTO public.shard VALUES (20, NULL, 0, NULL);
INSERT INTO public.shard VALUES (21, NULL, 0, NULL);
INSERT INTO public.shard VALUES (22, NULL, 0, NULL);
INSERT INTO public.shard VALUES (23, NULL, 0, NULL);
INSERT INTO public.shard VALUES (24, NULL, 0, NULL);
INSERT INTO public.shard VALUES (25, NULL, 0, NULL);
INSERT INTO public.shard VALUES (26, NULL, 0, NULL);
INSERT INTO public.shard VALUES (27, NULL, 0, NULL);
INSERT INTO public.shard VALUES (28, NULL, 0, NULL);
INSERT INTO public.shard VALUES (29, NULL, 0, NULL);
INSERT INTO public.shard VALUES (30, NULL, 0, NULL);
INSERT INTO public.shard VALUES (31, NULL, 0, NULL);
INSERT INTO public.shard VALUES (32, NULL, 0, NULL);
INSERT INTO public.shard VALUES (33, NULL, 0, NULL);
INSERT INTO public.shard VALUES (34, NULL, 0, NULL);
INSERT INTO public.shard VALUES (35, NULL, 0, NULL);
INSERT INTO public.shard VALUES (36, NULL, 0, NULL);
INSERT INTO public.shard VALUES (37, NULL, 0, NULL);
INSERT INTO public.shard VALUES (38, NULL, 0, NULL);
INSERT INTO public.shard VALUES (39, NULL, 0, NULL);
INSERT INTO public.shard VALUES (40, NULL, 0, NULL);
INSERT INTO public.shard VALUES (41, NULL, 0, NULL);
INSERT INTO public.shard VALUES (42, NULL, 0, NULL);
INSERT INTO public.shard VALUES (43, NULL, 0, NULL);
INSERT INTO public.shard VALUES (44, NULL, 0, NULL);
INSERT INTO public.shard VALUES (45, NULL, 0, NULL);
INSERT INTO public.shard VALUES (46, NULL, 0, NULL);
INSERT INTO public.shard VALUES (47, NULL, 0, NULL);
INSERT INTO public.shard VALUES (48, NULL, 0, NULL);
INSERT INTO public.shard VALUES (49, NULL, 0, NULL);
INSERT INTO public.shard VALUES (50, NULL, 0, NULL);
INSERT INTO public.shard VALUES (51, NULL, 0, NULL);
INSERT INTO public.shard VALUES (52, NULL, 0, NULL);
INSERT INTO public.shard VALUES (53, NULL, 0, NULL);
INSERT INTO public.shard VALUES (54, NULL, 0, NULL);
INSERT INTO public.shard VALUES (55, NULL, 0, NULL);
INSERT INTO public.shard VALUES (56, NULL, 0, NULL);
INSERT INTO public.shard VALUES (57, NULL, 0, NULL);
INSERT INTO public.shard VALUES (58, NULL, 0, NULL);
INSERT INTO public.shard VALUES (59, NULL, 0, NULL);
INSERT INTO public.shard VALUES (60, NULL, 0, NULL);
INSERT INTO public.shard VALUES (61, NULL, 0, NULL);
INSERT INTO public.shard VALUES (62, NULL, 0, NULL);
INSERT INTO public.shard VALUES (63, NULL, 0, NULL);
INSERT INTO public.shard VALUES (64, NULL, 0, NULL);
INSERT INTO public.shard VALUES (65, NULL, 0, NULL);
INSERT INTO public.shard VALUES (66, NULL, 0, NULL);
INSERT INTO public.shard VALUES (67, NULL, 0, NULL);
INSERT INTO public.shard VALUES (68, NULL, 0, NULL);
INSERT INTO public.shard VALUES (69, NULL, 0, NULL);
INSERT INTO public.shard VALUES (70, NULL, 0, NULL);
INSERT INTO public.shard VALUES (71, NULL, 0, NULL);
INSERT INTO public.shard VALUES (72, NULL, 0, NULL);
INSERT INTO public.shard VALUES (73, NULL, 0, NULL);
INSERT INTO public.shard VALUES (74, NULL, 0, NULL);
INSERT INTO public.shard VALUES (75, NULL, 0, NULL);
INSERT INTO public.shard VALUES (76, NULL, 0, NULL);
INSERT INTO public.shard VALUES (77, NULL, 0, NULL);
INSERT INTO public.shard VALUES (78, NULL, 0, NULL);
INSERT INTO public.shard VALUES (79, NULL, 0, NULL);
INSERT INTO public.shard VALUES (80, NULL, 0, NULL);
INSERT INTO public.shard VALUES (81, NULL, 0, NULL);
INSERT INTO public.shard VALUES (82, NULL, 0, NULL);
INSERT INTO public.shard VALUES (83, NULL, 0, NULL);
INSERT INTO public.shard VALUES (84, NULL, 0, NULL);
INSERT INTO public.shard VALUES (85, NULL, 0, NULL);
INSERT INTO public.shard VALUES (86, NULL, 0, NULL);
INSERT INTO public.shard VALUES (87, NULL, 0, NULL);
INSERT INTO public.shard VALUES (88, NULL, 0, NULL);
INSERT INTO public.shard VALUES (89, NULL, 0, NULL);
INSERT INTO public.shard VALUES (90, NULL, 0, NULL);
INSERT INTO public.shard VALUES (91, NULL, 0, NULL);
INSERT INTO public.shard VALUES (92, NULL, 0, NULL);
INSERT INTO public.shard VALUES (93, NULL, 0, NULL);
INSERT INTO public.shard VALUES (94, NULL, 0, NULL);
INSERT INTO public.shard VALUES (95, NULL, 0, NULL);
INSERT INTO public.shard VALUES (96, NULL, 0, NULL);
INSERT INTO public.shard VALUES (97, NULL, 0, NULL);
INSERT INTO public.shard VALUES (98, NULL, 0, NULL);
INSERT INTO public.shard VALUES (99, NULL, 0, NULL);
INSERT INTO public.shard VALUES (100, NULL, 0, NULL);
INSERT INTO public.shard VALUES (101, NULL, 0, NULL);
INSERT INTO public.shard VALUES (102, NULL, 0, NULL);
INSERT INTO public.shard VALUES (103, NULL, 0, NULL);
INSERT INTO public.shard VALUES (104, NULL, 0, NULL);
INSERT INTO public.shard VALUES (105, NULL, 0, NULL);
INSERT INTO public.shard VALUES (106, NULL, 0, NULL);
INSERT INTO public.shard VALUES (107, NULL, 0, NULL);
INSERT INTO public.shard VALUES (108, NULL, 0, NULL);
INSERT INTO public.shard VALUES (109, NULL, 0, NULL);
INSERT INTO public.shard VALUES (110, NULL, 0, NULL);
INSERT INTO public.shard VALUES (111, NULL, 0, NULL);
INSERT INTO public.shard VALUES (112, NULL, 0, NULL);
INSERT INTO public.shard VALUES (113, NULL, 0, NULL);
INSERT INTO public.shard VALUES (114, NULL, 0, NULL);
INSERT INTO public.shard VALUES (115, NULL, 0, NULL);
INSERT INTO public.shard VALUES (116, NULL, 0, NULL);
INSERT INTO public.shard VALUES (117, NULL, 0, NULL);
INSERT INTO public.shard VALUES (118, NULL, 0, NULL);
INSERT INTO public.shard VALUES (119, NULL, 0, NULL);
INSERT INTO public.shard VALUES (120, NULL, 0, NULL);
INSERT INTO public.shard VALUES (121, NULL, 0, NULL);
INSERT INTO public.shard VALUES (122, NULL, 0, NULL);
INSERT INTO public.shard VALUES (123, NULL, 0, NULL);
INSERT INTO public.shard VALUES (124, NULL, 0, NULL);
INSERT INTO public.shard VALUES (125, NULL, 0, NULL);
INSERT INTO public.shard VALUES (126, NULL, 0, NULL);
INSERT INTO public.shard VALUES (127, NULL, 0, NULL);
INSERT INTO public.shard VALUES (128, NULL, 0, NULL);
INSERT INTO public.shard VALUES (129, NULL, 0, NULL);
INSERT INTO public.shard VALUES (130, NULL, 0, NULL);
INSERT INTO public.shard VALUES (131, NULL, 0, NULL);
INSERT INTO public.shard VALUES (132, NULL, 0, NULL);
INSERT INTO public.shard VALUES (133, NULL, 0, NULL);
INSERT INTO public.shard VALUES (134, NULL, 0, NULL);
INSERT INTO public.shard VALUES (135, NULL, 0, NULL);
INSERT INTO public.shard VALUES (136, NULL, 0, NULL);
INSERT INTO public.shard VALUES (137, NULL, 0, NULL);
INSERT INTO public.shard VALUES (138, NULL, 0, NULL);
INSERT INTO public.shard VALUES (139, NULL, 0, NULL);
INSERT INTO public.shard VALUES (140, NULL, 0, NULL);
INSERT INTO public.shard VALUES (141, NULL, 0, NULL);
INSERT INTO public.shard VALUES (142, NULL, 0, NULL);
INSERT INTO public.shard VALUES (143, NULL, 0, NULL);
INSERT INTO public.shard VALUES (144, NULL, 0, NULL);
INSERT INTO public.shard VALUES (145, NULL, 0, NULL);
INSERT INTO public.shard VALUES (146, NULL, 0, NULL);
INSERT INTO public.shard VALUES (147, NULL, 0, NULL);
INSERT INTO public.shard VALUES (148, NULL, 0, NULL);
INSERT INTO public.shard VALUES (149, NULL, 0, NULL);
INSERT INTO public.shard VALUES (150, NULL, 0, NULL);
INSERT INTO public.shard VALUES (151, NULL, 0, NULL);
INSERT INTO public.shard VALUES (152, NULL, 0, NULL);
INSERT INTO public.shard VALUES (153, NULL, 0, NULL);
INSERT INTO public.shard VALUES (154, NULL, 0, NULL);
INSERT INTO public.shard VALUES (155, NULL, 0, NULL);
INSERT INTO public.shard VALUES (156, NULL, 0, NULL);
INSERT INTO public.shard VALUES (157, NULL, 0, NULL);
INSERT INTO public.shard VALUES (158, NULL, 0, NULL);
INSERT INTO public.shard VALUES (159, NULL, 0, NULL);
INSERT INTO public.shard VALUES (160, NULL, 0, NULL);
INSERT INTO public.shard VALUES (161, NULL, 0, NULL);
INSERT INTO public.shard VALUES (162, NULL, 0, NULL);
INSERT INTO public.shard VALUES (163, NULL, 0, NULL);
INSERT INTO public.shard VALUES (164, NULL, 0, NULL);
INSERT INTO public.shard VALUES (165, NULL, 0, NULL);
INSERT INTO public.shard VALUES (166, NULL, 0, NULL);
INSERT INTO public.shard VALUES (167, NULL, 0, NULL);
INSERT INTO public.shard VALUES (168, NULL, 0, NULL);
INSERT INTO public.shard VALUES (169, NULL, 0, NULL);
INSERT INTO public.shard VALUES (170, NULL, 0, NULL);
INSERT INTO public.shard VALUES (171, NULL, 0, NULL);
INSERT INTO public.shard VALUES (172, NULL, 0, NULL);
INSERT INTO public.shard VALUES (173, NULL, 0, NULL);
INSERT INTO public.shard VALUES (174, NULL, 0, NULL);
INSERT INTO public.shard VALUES (175, NULL, 0, NULL);
INSERT INTO public.shard VALUES (176, NULL, 0, NULL);
INSERT INTO public.shard VALUES (177, NULL, 0, NULL);
INSERT INTO public.shard VALUES (178, NULL, 0, NULL);
INSERT INTO public.shard VALUES (179, NULL, 0, NULL);
INSERT INTO public.shard VALUES (180, NULL, 0, NULL);
INSERT INTO public.shard VALUES (181, NULL, 0, NULL);
INSERT INTO public.shard VALUES (182, NULL, 0, NULL);
INSERT INTO public.shard VALUES (183, NULL, 0, NULL);
INSERT INTO public.shard VALUES (184, NULL, 0, NULL);
INSERT INTO public.shard VALUES (185, NULL, 0, NULL);
INSERT INTO public.shard VALUES (186, NULL, 0, NULL);
INSERT INTO public.shard VALUES (187, NULL, 0, NULL);
INSERT INTO public.shard VALUES (188, NULL, 0, NULL);
INSERT INTO public.shard VALUES (189, NULL, 0, NULL);
INSERT INTO public.shard VALUES (190, NULL, 0, NULL);
INSERT INTO public.shard VALUES (191, NULL, 0, NULL);
INSERT INTO public.shard VALUES (192, NULL, 0, NULL);
INSERT INTO public.shard VALUES (193, NULL, 0, NULL);
INSERT INTO public.shard VALUES (194, NULL, 0, NULL);
INSERT INTO public.shard VALUES (195, NULL, 0, NULL);
INSERT INTO public.shard VALUES (196, NULL, 0, NULL);
INSERT INTO public.shard VALUES (197, NULL, 0, NULL);
INSERT INTO public.shard VALUES (198, NULL, 0, NULL);
INSERT INTO public.shard VALUES (199, NULL, 0, NULL);
INSERT INTO public.shard VALUES (200, NULL, 0, NULL);
INSERT INTO public.shard VALUES (201, NULL, 0, NULL);
INSERT INTO public.shard VALUES (202, NULL, 0, NULL);
INSERT INTO public.shard VALUES (203, NULL, 0, NULL);
INSERT INTO public.shard VALUES (204, NULL, 0, NULL);
INSERT INTO public.shard VALUES (205, NULL, 0, NULL);
INSERT INTO public.shard VALUES (206, NULL, 0, NULL);
INSERT INTO public.shard VALUES (207, NULL, 0, NULL);
INSERT INTO public.shard VALUES (208, NULL, 0, NULL);
INSERT INTO public.shard VALUES (209, NULL, 0, NULL);
INSERT INTO public.shard VALUES (210, NULL, 0, NULL);
INSERT INTO public.shard VALUES (211, NULL, 0, NULL);
INSERT INTO public.shard VALUES (212, NULL, 0, NULL);
INSERT INTO public.shard VALUES (213, NULL, 0, NULL);
INSERT INTO public.shard VALUES (214, NULL, 0, NULL);
INSERT INTO public.shard VALUES (215, NULL, 0, NULL);
INSERT INTO public.shard VALUES (216, NULL, 0, NULL);
INSERT INTO public.shard VALUES (217, NULL, 0, NULL);
INSERT INTO public.shard VALUES (218, NULL, 0, NULL);
INSERT INTO public.shard VALUES (219, NULL, 0, NULL);
INSERT INTO public.shard VALUES (220, NULL, 0, NULL);
INSERT INTO public.shard VALUES (221, NULL, 0, NULL);
INSERT INTO public.shard VALUES (222, NULL, 0, NULL);
INSERT INTO public.shard VALUES (223, NULL, 0, NULL);
INSERT INTO public.shard VALUES (224, NULL, 0, NULL);
INSERT INTO public.shard VALUES (225, NULL, 0, NULL);
INSERT INTO public.shard VALUES (226, NULL, 0, NULL);
INSERT INTO public.shard VALUES (227, NULL, 0, NULL);
INSERT INTO public.shard VALUES (228, NULL, 0, NULL);
INSERT INTO public.shard VALUES (229, NULL, 0, NULL);
INSERT INTO public.shard VALUES (230, NULL, 0, NULL);
INSERT INTO public.shard VALUES (231, NULL, 0, NULL);
INSERT INTO public.shard VALUES (232, NULL, 0, NULL);
INSERT INTO public.shard VALUES (233, NULL, 0, NULL);
INSERT INTO public.shard VALUES (234, NULL, 0, NULL);
INSERT INTO public.shard VALUES (235, NULL, 0, NULL);
INSERT INTO public.shard VALUES (236, NULL, 0, NULL);
INSERT INTO public.shard VALUES (237, NULL, 0, NULL);
INSERT INTO public.shard VALUES (238, NULL, 0, NULL);
INSERT INTO public.shard VALUES (239, NULL, 0, NULL);
INSERT INTO public.shard VALUES (240, NULL, 0, NULL);
INSERT INTO public.shard VALUES (241, NULL, 0, NULL);
INSERT INTO public.shard VALUES (242, NULL, 0, NULL);
INSERT INTO public.shard VALUES (243, NULL, 0, NULL);
INSERT INTO public.shard VALUES (244, NULL, 0, NULL);
INSERT INTO public.shard VALUES (245, NULL, 0, NULL);
INSERT INTO public.shard VALUES (246, NULL, 0, NULL);
INSERT INTO public.shard VALUES (247, NULL, 0, NULL);
INSERT INTO public.shard VALUES (248, NULL, 0, NULL);
INSERT INTO public.shard VALUES (249, NULL, 0, NULL);
INSERT INTO public.shard VALUES (250, NULL, 0, NULL);
INSERT INTO public.shard VALUES (251, NULL, 0, NULL);
INSERT INTO public.shard VALUES (252, NULL, 0, NULL);
INSERT INTO public.shard VALUES (253, NULL, 0, NULL);
INSERT INTO public.shard VALUES (254, NULL, 0, NULL);
INSERT INTO public.shard VALUES (255, NULL, 0, NULL);
INSERT INTO public.share_weight VALUES ('etl', 1, 'admin', 1767268800000000);
INSERT INTO public.share_weight VALUES ('web', 1, 'admin', 1767268800000000);
INSERT INTO public.shared_key VALUES ('after:default', NULL, NULL);
INSERT INTO public.shared_key VALUES ('after:etl', NULL, NULL);
INSERT INTO public.shared_key VALUES ('after:web', NULL, NULL);
INSERT INTO public.start_delay VALUES ('default', 0.01, 6, 0);
INSERT INTO public.tally VALUES ('tidy', 'COMPLETED', 3);
INSERT INTO public.tally VALUES ('tidy', 'FAILED', 3);
INSERT INTO public.token VALUES ('t_ed1c8708a3a5', 'viewer', 'viewer', '6cbd04e9217cb5111ac984344dbe85e5d92427b7a9b79416bd12f9a23e8a7415', 'api', NULL, 'test', 1767268800000000, NULL, NULL, NULL, NULL);
INSERT INTO public.token VALUES ('t_b6115cb95c59', 'operator', 'operator', 'c7dcb8f116fa6bdd61441091f358c6fd1057b2f1155f7e753464bb91b9265b18', 'api', NULL, 'test', 1767268800000000, NULL, NULL, NULL, NULL);
INSERT INTO public.token VALUES ('t_ba09b526eace', 'viewer', 'admin', '640a7317704a52026a741fd4470460271b634f873f62723693baf5c69089c653', 'api', NULL, 'test', 1767268800000000, NULL, NULL, NULL, NULL);
INSERT INTO public.token VALUES ('t_a7186e2a3b14', 'node', 'viewer', 'fe8f707feb05c8c6d25bd0c809e1e564a85069fecd45707363bf7b975a7d220f', 'worker', NULL, 'test', 1767268800000000, NULL, NULL, NULL, NULL);
INSERT INTO public.token VALUES ('t_616bec2c01d0', 'gone', 'admin', '517e34bbc79fbc6f028feb551879172661c7eebdf7e7c943097b0b983de5a2e4', 'api', NULL, 'test', 1767268800000000, NULL, NULL, 1767268800000000, NULL);
INSERT INTO public.token VALUES ('t_9706245c7640', 'editor', 'editor', 'db140ba99e520c06277c824fd8b598ebfca05280fd4ea58818e1c9d413b4340f', 'api', NULL, 'test', 1767268800000000, NULL, 1767268800000000, NULL, NULL);
INSERT INTO public.token VALUES ('t_674bf8bf5b57', 'editor', 'editor', 'f367168809ab2134da206f88a7cd33154fc776c067151e74d56fec567b5aec24', 'session', 't_9706245c7640', 'editor', 1767268800000000, 1767873600000000, NULL, NULL, NULL);
INSERT INTO public.token VALUES ('t_443957af90b4', 'test', 'admin', '9f1918964a6d18462f413bfacaec3fe2d26582a7ea6f4763fe2f8b11c09a0e38', 'login', NULL, 'test', 1767268800000000, 1767312000000000, NULL, NULL, NULL);
INSERT INTO public.token VALUES ('t_df39880a2ba9', 'admin', 'admin', 'e83b19a0674fc0644ed1151321762ccbb7297a021ac8424181e35ef01b832f83', 'api', NULL, 'test', 1767268800000000, NULL, 1767268800000000, NULL, NULL);
SELECT pg_catalog.setval('public.event_number', 68, true);
SELECT pg_catalog.setval('public.run_seq_seq', 15, true);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (run_id, number);
ALTER TABLE ONLY public.backfill
    ADD CONSTRAINT backfill_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.calendar
    ADD CONSTRAINT calendar_pkey PRIMARY KEY (project, name);
ALTER TABLE ONLY public.calendar_use
    ADD CONSTRAINT calendar_use_pkey PRIMARY KEY (job_id, calendar);
ALTER TABLE ONLY public.cart_item
    ADD CONSTRAINT cart_item_pkey PRIMARY KEY (cart, number);
ALTER TABLE ONLY public.cart
    ADD CONSTRAINT cart_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.cart_template
    ADD CONSTRAINT cart_template_pkey PRIMARY KEY (project, name);
ALTER TABLE ONLY public.chain
    ADD CONSTRAINT chain_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.completion
    ADD CONSTRAINT completion_pkey PRIMARY KEY (project, job);
ALTER TABLE ONLY public.declaration
    ADD CONSTRAINT declaration_pkey PRIMARY KEY (kind, project, name);
ALTER TABLE ONLY public.dependency
    ADD CONSTRAINT dependency_pkey PRIMARY KEY (job_id, upstream);
ALTER TABLE ONLY public.drained_worker
    ADD CONSTRAINT drained_worker_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_version
    ADD CONSTRAINT job_version_pkey PRIMARY KEY (job_id, version);
ALTER TABLE ONLY public.kept_key
    ADD CONSTRAINT kept_key_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.key_charge
    ADD CONSTRAINT key_charge_pkey PRIMARY KEY (key, at, seq);
ALTER TABLE ONLY public.late_result
    ADD CONSTRAINT late_result_pkey PRIMARY KEY (run_id, attempt, session);
ALTER TABLE ONLY public.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.output_chunk
    ADD CONSTRAINT output_chunk_pkey PRIMARY KEY (run_id, attempt, number);
ALTER TABLE ONLY public.pool
    ADD CONSTRAINT pool_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.prediction
    ADD CONSTRAINT prediction_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY public.rekeying
    ADD CONSTRAINT rekeying_pkey PRIMARY KEY (project);
ALTER TABLE ONLY public.reservation
    ADD CONSTRAINT reservation_pkey PRIMARY KEY (pool);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_id_key UNIQUE (id);
ALTER TABLE ONLY public.run_key
    ADD CONSTRAINT run_key_pkey PRIMARY KEY (key, seq);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.server
    ADD CONSTRAINT server_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT session_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.shape
    ADD CONSTRAINT shape_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.share_weight
    ADD CONSTRAINT share_weight_pkey PRIMARY KEY (share);
ALTER TABLE ONLY public.shared_key
    ADD CONSTRAINT shared_key_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.start_delay
    ADD CONSTRAINT start_delay_pkey PRIMARY KEY (pool, up_to);
ALTER TABLE ONLY public.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (job, state);
ALTER TABLE ONLY public.token
    ADD CONSTRAINT token_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.unanswered
    ADD CONSTRAINT unanswered_pkey PRIMARY KEY (job_id, first);
ALTER TABLE ONLY public.upstream_end
    ADD CONSTRAINT upstream_end_pkey PRIMARY KEY (run_id);
CREATE INDEX attempt_output_pending ON public.attempt USING btree (session) WHERE (output_state = 'pending'::text);
CREATE INDEX backfill_job ON public.backfill USING btree (job_id);
CREATE INDEX calendar_users ON public.calendar_use USING btree (project, calendar);
CREATE INDEX cart_age ON public.cart USING btree (created_at, id);
CREATE INDEX cart_check ON public.cart USING btree (check_run) WHERE (check_run IS NOT NULL);
CREATE UNIQUE INDEX cart_item_key ON public.cart_item USING btree (cart, key);
CREATE INDEX cart_item_open ON public.cart_item USING btree (cart, state, run) WHERE (state = 'OPEN'::text);
CREATE INDEX cart_item_state ON public.cart_item USING btree (cart, state, wave, number);
CREATE UNIQUE INDEX cart_live ON public.cart USING btree (project, name) WHERE ((ended_at IS NULL) AND (state <> 'LOADING'::text));
CREATE INDEX cart_look ON public.cart USING btree (look_at) WHERE (look_at IS NOT NULL);
CREATE INDEX cart_open ON public.cart USING btree (shard) WHERE (open > 0);
CREATE INDEX cart_template_due ON public.cart_template USING btree (next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX chain_active ON public.chain USING btree (pool, priority) WHERE (active = 1);
CREATE INDEX declaration_updated ON public.declaration USING btree (updated_at);
CREATE INDEX dependency_upstream ON public.dependency USING btree (project, upstream);
CREATE UNIQUE INDEX job_name ON public.job USING btree (project, name) WHERE (deleted_at IS NULL);
CREATE INDEX job_pause ON public.job USING btree (paused_until) WHERE (paused_until IS NOT NULL);
CREATE INDEX job_stuck ON public.job USING btree (stuck_since) WHERE (stuck_since IS NOT NULL);
CREATE INDEX kept_key_until ON public.kept_key USING btree (until);
CREATE INDEX prediction_made ON public.prediction USING btree (made_at);
CREATE INDEX run_backfill ON public.run USING btree (backfill, seq) WHERE (backfill IS NOT NULL);
CREATE INDEX run_backfilled ON public.run USING btree (job_id, due_at) WHERE (backfill IS NOT NULL);
CREATE INDEX run_blocked ON public.run USING btree (blocked_on, seq) WHERE (state = 'BLOCKED'::text);
CREATE INDEX run_cart ON public.run USING btree (cart, seq) WHERE (cart IS NOT NULL);
CREATE INDEX run_deadline ON public.run USING btree (deadline_at) WHERE ((deadline_at IS NOT NULL) AND (state = ANY (ARRAY['SCHEDULED'::text, 'BLOCKED'::text, 'QUEUED'::text])));
CREATE INDEX run_drop ON public.run USING btree (drop_at) WHERE ((drop_at IS NOT NULL) AND (state = ANY (ARRAY['SCHEDULED'::text, 'BLOCKED'::text, 'QUEUED'::text])));
CREATE INDEX run_eligible ON public.run USING btree (eligible_at, seq) WHERE (state = 'SCHEDULED'::text);
CREATE INDEX run_gated ON public.run USING btree (gate_job, state) WHERE ((gate_job IS NOT NULL) AND (state = ANY (ARRAY['SCHEDULED'::text, 'BLOCKED'::text, 'QUEUED'::text, 'CLAIMED'::text, 'PROCESSING'::text, 'UNKNOWN'::text])));
CREATE INDEX run_held ON public.run USING btree (session) WHERE (state = ANY (ARRAY['CLAIMED'::text, 'PROCESSING'::text]));
CREATE INDEX run_job ON public.run USING btree (job_id, seq);
CREATE INDEX run_key_eligible ON public.run USING btree (eligible_at) WHERE ((state = 'BLOCKED'::text) AND (keys IS NOT NULL) AND (eligible_at IS NOT NULL));
CREATE INDEX run_objective ON public.run USING btree (late_at) WHERE ((late_at IS NOT NULL) AND (is_late IS NULL));
CREATE INDEX run_output_pending ON public.run USING btree (session) WHERE (output_state = 'pending'::text);
CREATE INDEX run_queued ON public.run USING btree (chain, seq) WHERE (state = 'QUEUED'::text);
CREATE INDEX run_unknown ON public.run USING btree (seq) WHERE (state = 'UNKNOWN'::text);
CREATE INDEX run_waits_for_key ON public.run USING btree (blocked_on, priority DESC, seq) WHERE ((state = 'BLOCKED'::text) AND (keys IS NOT NULL));
CREATE INDEX schedule_due ON public.schedule USING btree (next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX schedule_waiting ON public.schedule USING btree (job_id) WHERE (waits = 1);
CREATE INDEX session_alive ON public.session USING btree (pool) WHERE (alive = 1);
CREATE INDEX session_ended ON public.session USING btree (pool, expires_at) WHERE (alive = 0);
