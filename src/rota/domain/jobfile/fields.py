"""Table of fields: job, defaults and file.

The validator, the JSON Schema and the reference page all come from it, so a field is added here
(or, where it has a module of its own, there), in `build`, and nowhere else.
"""

from __future__ import annotations

from datetime import timedelta

from rota.domain.jobfile.calendars import CALENDARS, CALENDARS_OF_JOB
from rota.domain.jobfile.cart_fields import CARTS
from rota.domain.jobfile.declarations import DECLARATIONS
from rota.domain.jobfile.demands import DEMANDS
from rota.domain.jobfile.external import EXTERNAL_OF_JOB
from rota.domain.jobfile.files import SOURCE
from rota.domain.jobfile.formats import SHORT_FORM
from rota.domain.jobfile.http import HTTP_OF_JOB
from rota.domain.jobfile.kinds import Choice, Duration, Flag, Instant, Integer, Size, Zone
from rota.domain.jobfile.parts import (
    DST,
    INPUT,
    LATER,
    MISFIRE,
    PROBE,
    RETRY,
    SHORTEST,
    STEP,
    WEEK,
)
from rota.domain.jobfile.sections import (
    ENV,
    LABELS,
    LINE,
    NAME,
    NEEDS,
    PROSE,
    SCHEDULE,
    TITLE,
    VARIABLE,
    Field,
    ListOf,
    MapOf,
    Section,
)
from rota.domain.jobfile.slips import DEFAULTS_ADVICE, FILE_ADVICE, JOB_ADVICE
from rota.domain.jobfile.types import PARAMETERS, TypeName
from rota.domain.jobfile.walls import WALLS_OF_JOB
from rota.domain.quantities import format_duration, format_size
from rota.domain.spec import (
    DEFAULT_GRACE,
    DEFAULT_LOG_LIMIT,
    DEFAULT_MAX_LOSSES,
    DEFAULT_POOL,
    DEFAULT_PRIORITY,
    DEFAULT_PROJECT,
    GREATEST_PRIORITY,
    LEAST_PRIORITY,
    Delivery,
    IntervalFrom,
    Late,
    OutputKept,
    Overlap,
)

MAX_JOBS = 10_000
MAX_STEPS = 200

_WHAT_IT_IS = (
    Field("name", NAME, "Unique in its project.", required=True, shared=False),
    Field("project", NAME, "The project; the file's, unless given.", shared=False),
    Field(
        "title",
        TITLE,
        "What people are shown beside its name, in any script.",
        examples=("Monatsbericht für Köln",),
        shared=False,
    ),
    Field("description", PROSE, "What the job is for.", shared=False),
    Field("owner", LINE, "Who looks after the job.", examples=("team-data",)),
    Field("runbook", LINE, "Where to read what to do when it fails; usually an address."),
    Field("labels", LABELS, "Free names and values to find jobs by.", examples=({"tier": "gold"},)),
    Field("enabled", Flag(), "Whether the schedule makes runs.", True),
)

_WHEN = (
    Field(
        "schedule",
        SCHEDULE,
        "A cron expression, an interval, an ISO 8601 time, each also in the words that Rota "
        "prints, or a list of these; without it the job runs on demand only.",
        examples=(
            "0 2 * * *",
            "every 10s",
            "every day at 02:00",
            "2026-06-01T22:00:00+02:00",
            ["@daily", "0 12 * * 1"],
        ),
        shared=False,
    ),
    Field("timezone", Zone(), "The zone of the schedule.", "UTC", ("Europe/Berlin",)),
    Field("run_once", Flag(), "Run at the first due time only.", False, shared=False),
    Field("starts", Instant(), "No due time lies before it.", shared=False),
    Field("ends", Instant(), "No due time lies after it.", shared=False),
    Field(
        "jitter",
        Duration(most=WEEK),
        "Each run is released up to this much later; how much is fixed per due time.",
        "0s",
    ),
    Field(
        "spread",
        Duration(most=WEEK),
        "All runs are released up to this much later; how much is fixed per job.",
        "0s",
    ),
    Field("dst", DST, "What happens when clocks change."),
    Field("misfire", MISFIRE, "What happens to due times that passed while nothing could fire."),
    Field(
        "overlap",
        Choice(Overlap),
        "What a due run does while another run of the job is active.",
        "queue_one",
    ),
    Field(
        "max_concurrency",
        Integer(1, 100_000),
        "At most this many runs of the job at once, however they were started.",
    ),
    Field(
        "start_within",
        Duration(SHORTEST),
        "The objective for lateness: how long after its due time a run should have started.",
        examples=("30s",),
    ),
    Field("late", Choice(Late), "Run or drop a run that missed `start_within`.", "run"),
    Field(
        "interval_from",
        Choice(IntervalFrom),
        "Whether an interval counts from due time to due time, or from the end of the last run.",
        "schedule",
    ),
    CALENDARS_OF_JOB,
)

_WHAT_IT_RUNS = (
    Field(
        "type",
        TypeName(),
        "What kind of work the job is: one that Rota brings, or a type of a "
        "[plug-in](../howto/write-a-job-type.md) that a worker has offered; `container` is the "
        "same as `isolation: container`.",
        "shell",
    ),
    Field(
        "steps",
        ListOf(STEP, most=MAX_STEPS, least=1, instead="write [{run: COMMAND}]"),
        "What a `shell` job runs, in order; in one container, where that is its wall.",
        shared=False,
    ),
    Field(
        "function",
        LINE,
        "What a `python` job runs: the name under which a worker's app registered the function.",
        examples=("payouts.daily",),
        shared=False,
    ),
    Field("source", SOURCE, "Where the code is."),
    Field(
        "inputs",
        MapOf(VARIABLE, INPUT, most=100, instead="write it as {NAME: {type: string}}"),
        "Values a trigger may give; steps see them as `INPUT_NAME` variables, in capitals.",
        examples=({"target": {"type": "string", "default": "all"}},),
    ),
    Field(
        "env",
        ENV,
        "Variables for all steps; none that begins with `ROTA_`.",
        examples=({"PGSSLMODE": "require"},),
    ),
    HTTP_OF_JOB,
    EXTERNAL_OF_JOB,
    PARAMETERS,
    *SHORT_FORM,
    Field("secrets", LATER, "Secrets given to the job."),
)

_WHO_GOES_FIRST = (
    Field(
        "priority", Integer(LEAST_PRIORITY, GREATEST_PRIORITY), "9 goes first.", DEFAULT_PRIORITY
    ),
    Field(
        "share",
        LINE,
        "Whose turn its runs are, of the shares that admins have made; the user in the project, "
        "unless given.",
        examples=("night",),
    ),
    Field("pool", NAME, "The pool of workers that runs it.", DEFAULT_POOL),
    Field("needs", NEEDS, "Labels that the worker must have.", examples=({"site": "fra"},)),
    Field(
        "expect",
        Duration(),
        "How long a run is expected to take, until there is history.",
        examples=("12m",),
    ),
    *DEMANDS,
)

_HOW_IT_ENDS = (
    Field(
        "delivery",
        Choice(Delivery),
        "What a lost worker means: a new attempt, or UNKNOWN until a person or the `probe` "
        "decides.",
        "at_least_once",
    ),
    Field("timeout", Duration(SHORTEST), "How long one attempt may take.", examples=("1h",)),
    Field(
        "deadline",
        Duration(SHORTEST),
        "How long after its due time a run may end, all attempts included.",
        examples=("6h",),
    ),
    Field(
        "grace",
        Duration(most=timedelta(days=1)),
        "The time between TERM and KILL when a run is stopped.",
        format_duration(DEFAULT_GRACE),
    ),
    Field("retry", RETRY, "Trying again after a failure; a bare number means `attempts`."),
    Field(
        "max_losses",
        Integer(0, 100),
        "How many lost workers a run survives before it is taken for their cause.",
        DEFAULT_MAX_LOSSES,
    ),
    Field(
        "log_limit",
        Size(1024, 10 * 1024**3),
        "How much output of an attempt is kept.",
        format_size(DEFAULT_LOG_LIMIT),
    ),
    Field(
        "output",
        Choice(OutputKept),
        "Where output is kept: a few kilobytes in the store and more in the blob store, or all of "
        "it in the blob store.",
        "auto",
    ),
    Field(
        "probe",
        PROBE,
        "The command that tells how a run ended that is UNKNOWN, for `delivery: at_most_once`; a "
        "bare script is its `run`.",
    ),
    Field("lease", LATER, "How long a worker may be silent."),
    Field(
        "stalled_after",
        Duration(timedelta(seconds=1), most=WEEK),
        "How long an attempt may print nothing and tell no progress: then it is stopped like one "
        "that took too long, and `retry` goes by `timed_out`.",
        examples=("20m",),
    ),
    Field("notify", LATER, "Whom to tell about what."),
    Field("keep", LATER, "How long runs, output and artifacts are kept."),
)

JOB_GROUPS = {
    "What it is": _WHAT_IT_IS,
    "When": _WHEN,
    "What it runs": _WHAT_IT_RUNS,
    "How it is kept apart": WALLS_OF_JOB,
    "Who goes first": _WHO_GOES_FIRST,
    "How it ends": _HOW_IT_ENDS,
}
JOB = Section(
    "job", tuple(row for group in JOB_GROUPS.values() for row in group), advice=JOB_ADVICE
)
DEFAULTS = Section(
    "defaults", tuple(row for row in JOB.fields if row.shared), advice=DEFAULTS_ADVICE
)
FILE = Section(
    "",
    (
        Field("project", NAME, "The project of the jobs that name none.", DEFAULT_PROJECT),
        Field(
            "set",
            NAME,
            "What `apply --prune` compares with: jobs once applied under this name; the file's "
            "name, unless given; a pipe that names none leaves each job in its set.",
        ),
        Field("defaults", DEFAULTS, "Fields that every job of the file has unless it says else."),
        Field(
            "jobs",
            ListOf(JOB, most=MAX_JOBS),
            "The jobs; required, unless the file has carts, limits or resources.",
        ),
        *DECLARATIONS,
        CALENDARS,
        CARTS,
    ),
    needs_one_of=("jobs", "carts", "limits", "resources"),
    advice=FILE_ADVICE,
)
