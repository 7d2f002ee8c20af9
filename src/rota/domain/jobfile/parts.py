"""Table of fields, first half: the sections that stand inside a job."""

from __future__ import annotations

from datetime import timedelta

from rota.domain.jobfile.files import ARTIFACTS
from rota.domain.jobfile.kinds import Choice, Duration, Flag, Integer, Share, Text
from rota.domain.jobfile.sections import (
    COMMAND,
    ENV,
    FOLDER,
    LINE,
    PROSE,
    SHELL,
    TITLE,
    WORDS,
    Field,
    InputValue,
    ListOf,
    NotYet,
    Section,
)
from rota.domain.jobfile.slips import (
    INPUT_ADVICE,
    MISFIRE_ADVICE,
    RETRY_ADVICE,
    STEP_ADVICE,
)
from rota.domain.jobfile.walls import WALLS_OF_STEP
from rota.domain.patterns import MAX_PATTERN
from rota.domain.quantities import format_duration
from rota.domain.spec import (
    DEFAULT_PROBE_TIMEOUT,
    Backoff,
    Fold,
    Gap,
    InputType,
    MisfirePolicy,
    Probe,
    StepCondition,
)

SHORTEST = timedelta(milliseconds=1)
WEEK = timedelta(days=7)
LATER = NotYet()

RETRY = Section(
    "retry",
    (
        Field("attempts", Integer(1, 1_000), "Tries in total, the first included.", 1),
        Field(
            "backoff",
            Choice(Backoff),
            "Whether the pause between tries stays the same or doubles each time.",
            "fixed",
        ),
        Field("delay", Duration(most=WEEK), "The pause before the second try.", "0s", ("10s",)),
        Field(
            "max_delay",
            Duration(most=WEEK),
            "The longest pause; `5m`, or `delay` where that is longer, unless given.",
            examples=("1h",),
        ),
        Field(
            "jitter",
            Share(),
            "Up to this share of the pause is added at random, so that many do not retry at once.",
            0,
            (0.2, "20%"),
        ),
        Field(
            "when",
            ListOf(Choice(("failed", "timed_out")), most=2, least=1),
            "The endings that are tried again.",
            ["failed", "timed_out"],
        ),
        Field(
            "exit_codes",
            ListOf(Integer(0, 255), most=256, least=1),
            "Retry a failure only when it ended with one of these exit codes; any, unless given.",
            examples=([75, 111],),
        ),
    ),
    shorthand="attempts",
    advice=RETRY_ADVICE,
)

MISFIRE = Section(
    "misfire",
    (
        Field(
            "policy",
            Choice(MisfirePolicy),
            "Which of the due times that passed while nothing could fire are still run.",
            "last",
        ),
        Field(
            "within",
            Duration(),
            "Older due times are recorded as MISSED; `1d` unless given, but without limit for a "
            "job that runs once.",
            examples=("6h",),
        ),
        Field("max", Integer(1, 10_000), "At most this many due times are caught up.", 100),
    ),
    advice=MISFIRE_ADVICE,
)

DST = Section(
    "dst",
    (
        Field(
            "gap",
            Choice(Gap),
            "A local time that clocks going forward leave out: run right after the gap, or skip.",
            "run_after",
        ),
        Field(
            "fold",
            Choice(Fold),
            "A local time that clocks going back repeat: run the first one only, or both.",
            "first",
        ),
    ),
)

INPUT = Section(
    "input",
    (
        Field("type", Choice(InputType), "The type of the value.", "string"),
        Field(
            "default",
            InputValue(),
            "The value when a trigger gives none; an input without it must be given.",
            examples=("all",),
        ),
        Field(
            "options",
            ListOf(
                Text(max_length=200, takes_numbers=True),
                most=200,
                least=1,
                instead="write them as a list: [small, large]",
            ),
            "The values that an input of type `choice` may have.",
            examples=(["staging", "production"],),
        ),
        Field(
            "pattern",
            Text("a regular expression", MAX_PATTERN),
            "What the whole text must match, for an input of type `string`: a regular expression "
            "of characters, `[a-z]`, `\\d \\w \\s`, `.`, alternatives, groups and repetitions such "
            "as `{2,5}`; such a text has at most 1,000 characters.",
            examples=("[0-9]{4}-[0-9]{2}-[0-9]{2}",),
        ),
        Field("help", PROSE, "What the input means, for whoever triggers the job."),
    ),
    advice=INPUT_ADVICE,
)

PROBE = Section(
    "probe",
    (
        Field(
            "run",
            COMMAND,
            "What tells how the run ended: exit code 0 is completed, 1 failed, 2 means that it had "
            "no effect and is to be tried again; anything else is no answer.",
            examples=("./was_it_paid.sh",),
            required=True,
        ),
        Field("shell", SHELL, "What reads the script, as in a step.", "sh"),
        Field(
            "timeout",
            Duration(SHORTEST),
            "How long one try may take.",
            format_duration(DEFAULT_PROBE_TIMEOUT),
        ),
        Field(
            "attempts",
            Integer(1, 1_000),
            "How many tries may give no answer before a person must decide.",
            Probe("").attempts,
        ),
        Field(
            "delay",
            Duration(most=WEEK),
            "The pause before the first try; it doubles from try to try.",
            format_duration(Probe("").delay),
        ),
        Field(
            "max_delay",
            Duration(most=WEEK),
            "The longest pause; `5m`, or `delay` where that is longer, unless given.",
            examples=("1h",),
        ),
    ),
    shorthand="run",
)

STEP = Section(
    "step",
    (
        Field("name", LINE, "What the step is called; `step 1`, `step 2`, … unless given."),
        Field("title", TITLE, "What people are shown as its name, in any script."),
        Field(
            "run",
            COMMAND,
            "A script for the shell, or a list: a program and its arguments, run without a shell.",
            examples=("go test ./...", ["tar", "-czf", "backup.tgz", "data"]),
            required=True,
        ),
        Field("shell", SHELL, "What reads the script: `sh`, `bash`, `python`, `node`, ….", "sh"),
        Field(
            "interpreter",
            WORDS,
            "A command that the script's file is appended to; wins over `shell`.",
            examples=(["/usr/bin/perl", "-w"],),
        ),
        Field(
            "folder",
            FOLDER,
            "The folder that the step runs in, below the work folder; the work folder itself, "
            "unless given.",
            examples=("services/api",),
        ),
        Field(
            "env",
            ENV,
            "Variables for this step, over those of the job; none that begins with `ROTA_`.",
        ),
        Field("timeout", Duration(SHORTEST), "How long the step may take.", examples=("20m",)),
        Field("retry", RETRY, "Trying this step again before the attempt counts as failed."),
        Field("continue_on_error", Flag(), "Go on with the next step although this failed.", False),
        Field(
            "if",
            Choice(StepCondition),
            "Run the step while all went well, only after a failure, or in any case.",
            "success",
        ),
        *WALLS_OF_STEP,
        Field("secrets", LATER, "Secrets for this step only."),
        Field(
            "artifacts",
            ARTIFACTS,
            "Files to keep when the step has ended, also after a failure; a list is their `paths`.",
            examples=(["report.json"],),
        ),
    ),
    advice=STEP_ADVICE,
)
