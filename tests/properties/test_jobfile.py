"""Whatever is thrown at it, reading a job file ends in a spec or in `Invalid`."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import json_schema, parse_inputs, read_file, read_job, to_yaml
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM, ITEMS_FROM
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, RATE_LIMIT
from rota.domain.jobfile.fields import FILE, JOB
from rota.domain.jobfile.files import SOURCE
from rota.domain.jobfile.kinds import Choice
from rota.domain.jobfile.parts import DST, INPUT, MISFIRE, RETRY, STEP

OF_JOBS = (FILE, JOB, STEP, RETRY, MISFIRE, DST, INPUT, SOURCE)
OF_ORDER = (RATE_LIMIT, AFTER, LIMIT, RESOURCE)
OF_CARTS = (CART, ITEM, ITEMS_FROM, FAILURES, BETWEEN)
KEYS = sorted({row.name for part in (*OF_JOBS, *OF_ORDER, *OF_CARTS) for row in part.fields})
WORDS = sorted(
    {
        name
        for part in (JOB, STEP, RETRY, MISFIRE, DST, INPUT, *OF_ORDER)
        for row in part.fields
        if isinstance(row.kind, Choice)
        for name in row.kind.names
    }
)
TEXTS = st.text(max_size=20) | st.sampled_from(
    [*WORDS, "1h", "30s", "@daily", "0 2 * * *", "0 2 * *", "UTC", "2026-01-01", "/srv", "10MiB"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=25,
)
VALIDATOR = Draft202012Validator(json_schema())
PRINTABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
DURATIONS = st.integers(1, 3_600_000).map(lambda number: f"{number}ms")
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
VARIABLES = st.from_regex(r"(?!ROTA_)[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
ENVS = st.dictionaries(VARIABLES, PRINTABLE | st.integers(-999, 999) | st.booleans(), max_size=3)


def choice(*options: str) -> st.SearchStrategy[str]:
    return st.sampled_from(options)


RETRIES = st.integers(1, 9) | st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(1, 1_000),
        "backoff": choice("fixed", "exponential"),
        "delay": DURATIONS,
        "jitter": st.floats(0, 1) | choice("0%", "12.5%", "100%"),
        "when": st.lists(choice("failed", "timed_out"), min_size=1, max_size=2),
        "exit_codes": st.lists(st.integers(0, 255), min_size=1, max_size=3),
    },
)
STEPS = st.fixed_dictionaries(
    {"run": PRINTABLE | st.lists(PRINTABLE, min_size=1, max_size=3)},
    optional={
        "shell": choice("sh", "bash", "python"),
        "env": ENVS,
        "timeout": DURATIONS,
        "retry": RETRIES,
        "continue_on_error": st.booleans(),
        "if": choice("success", "failure", "always"),
    },
)
AMOUNTS = (
    st.integers(0, 10**15)
    | st.integers(0, 10**6).map(lambda thousandths: thousandths / 1_000)
    | choice("4GiB", "1.5GB")
)
SHARED = {
    "resources": st.fixed_dictionaries(
        {}, optional={"cpu": AMOUNTS, "licence": AMOUNTS, "catalog": choice("read", "write")}
    ),
    "rate_limits": st.lists(
        NAMES
        | st.fixed_dictionaries({"name": NAMES}, optional={"tokens": st.integers(1, 1_000_000)}),
        max_size=3,
        unique_by=lambda limit: limit if isinstance(limit, str) else limit["name"],
    ),
    "owner": NAMES,
    "labels": st.dictionaries(NAMES, NAMES, max_size=3),
    "timezone": choice("UTC", "Europe/Berlin", "Australia/Lord_Howe"),
    "spread": DURATIONS,
    "dst": st.fixed_dictionaries({}, optional={"gap": choice("skip"), "fold": choice("both")}),
    "misfire": st.fixed_dictionaries(
        {}, optional={"policy": choice("all", "none"), "within": DURATIONS, "max": st.just(3)}
    ),
    "overlap": choice("skip", "allow"),
    "env": ENVS,
    "priority": st.integers(0, 9),
    "timeout": DURATIONS,
    "retry": RETRIES,
    "log_limit": choice("1MiB", "2.5GB"),
}
JOBS = st.fixed_dictionaries(
    {"name": NAMES, "steps": st.lists(STEPS, min_size=1, max_size=3)},
    optional={
        **SHARED,
        "description": PRINTABLE,
        "after": st.lists(NAMES.map("upstream.{}".format), min_size=1, max_size=2, unique=True),
        "schedule": choice("0 2 * * *", "@daily", "every 200ms", "2026-06-01T22:00")
        | st.just(["@daily", "5 4 * * 1"]),
        "run_once": st.booleans(),
        "starts": choice("2026-01-01", "2026-01-01T00:00:00Z"),
        "inputs": st.dictionaries(
            VARIABLES.map(str.lower),
            st.fixed_dictionaries({"default": PRINTABLE}, optional={"help": PRINTABLE}),
            max_size=2,
        ),
    },
)
FILES = st.fixed_dictionaries(
    {"jobs": st.lists(JOBS, max_size=4, unique_by=lambda job: job["name"])},
    optional={"defaults": st.fixed_dictionaries({}, optional=SHARED), "project": NAMES},
)


def problems_of(read: Callable[[], object]) -> tuple[Problem, ...]:
    """Every problem of what was read; none when it was accepted."""
    try:
        read()
    except Invalid as error:
        return error.problems or (Problem("refused without a reason"),)
    return ()


def is_clear(problem: Problem) -> bool:
    return problem.message.isprintable() and 5 < len(problem.message) < 500


@given(ANYTHING)
def test_any_data_is_read_or_refused(data: object) -> None:
    problems = problems_of(lambda: read_file(json.dumps(data), name="jobs"))

    assert all(is_clear(problem) for problem in problems)


@given(st.lists(ANYTHING, min_size=1, max_size=3), ANYTHING)
def test_any_jobs_are_read_or_refused_with_the_place(jobs: list[object], defaults: object) -> None:
    text = json.dumps({"jobs": jobs, "defaults": defaults}, indent=1)

    problems = problems_of(lambda: read_file(text, name="jobs"))

    assert all(is_clear(problem) and problem.line and problem.column for problem in problems)
    assert [problem.line for problem in problems] == sorted(
        problem.line or 0 for problem in problems
    )


@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=8))
def test_any_document_is_read_or_refused(fields: dict[str, object]) -> None:
    document = {"name": "x", "steps": [{"run": "x"}], **fields}

    problems = problems_of(lambda: read_job(document))

    assert all(is_clear(problem) for problem in problems)


@given(st.text() | st.text("[]{}:,-?&*!|>'\"%@`#\n \tax1~<.", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    problems = problems_of(lambda: read_file(text, name="jobs"))

    assert all(is_clear(problem) for problem in problems)


@settings(max_examples=40)
@given(FILES)
def test_stored_document_gives_the_same_spec_again(file: dict[str, object]) -> None:
    for entry in read_file(json.dumps(file), name="jobs").jobs:
        assert read_job(json.loads(json.dumps(entry.document))) == entry.spec


@settings(max_examples=40)
@given(FILES)
def test_export_reads_back_unchanged(file: dict[str, object]) -> None:
    entries = read_file(json.dumps(file), name="jobs").jobs

    exported = to_yaml(entry.document for entry in entries)

    again = read_file(exported, name="jobs").jobs
    assert [entry.document for entry in again] == [entry.document for entry in entries]


@settings(max_examples=40)
@given(FILES)
def test_valid_file_passes_the_schema(file: dict[str, object]) -> None:
    read_file(json.dumps(file), name="jobs")

    assert VALIDATOR.is_valid(file)


@given(st.dictionaries(choice("text", "count", "other"), SCALARS | st.lists(SCALARS, max_size=1)))
def test_any_inputs_are_read_or_refused(input_variables: dict[str, object]) -> None:
    spec = read_job(
        {
            "name": "x",
            "steps": [{"run": "x"}],
            "inputs": {"text": {"default": ""}, "count": {"type": "integer", "default": 1}},
        }
    )
    try:
        values = parse_inputs(spec, input_variables)
    except Invalid:
        return
    assert values.keys() == spec.inputs.keys()
    assert isinstance(values["count"], int)
