from __future__ import annotations

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import read_file, read_job
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, FOLLOW, RATE_LIMIT
from rota.domain.jobfile.fields import DEFAULTS, FILE, JOB
from rota.domain.jobfile.files import SOURCE
from rota.domain.jobfile.formats import SHORT
from rota.domain.jobfile.parts import DST, INPUT, MISFIRE, RETRY, STEP
from rota.domain.jobfile.sections import Field, Section
from rota.domain.jobfile.walls import MOUNT, OF_CONTAINERS, RUN_LIMITS
from tests.unit.domain.jobfile.jobfiles import file_of, job

OF_JOBS = (
    JOB,
    STEP,
    RETRY,
    MISFIRE,
    DST,
    INPUT,
    SOURCE,
    RATE_LIMIT,
    AFTER,
    FOLLOW,
    RUN_LIMITS,
    MOUNT,
)
OF_FILES = (FILE, LIMIT, RESOURCE)
SECTIONS = (*OF_JOBS, *OF_FILES)
Row = tuple[Section, Field]


def rows() -> list[Row]:
    return [(section, row) for section in SECTIONS for row in section.fields]


def named(row: Row) -> str:
    return f"{row[0].title or 'file'}.{row[1].name}"


def walled_document_with(section: Section, name: str, value: object) -> dict[str, object] | None:
    """A job whose wall can have the field; None: any can."""
    scheduled = job(schedule="1m")
    if section is JOB and name in OF_CONTAINERS:
        steps = None if name == "command" else [{"run": "true"}]
        return job(isolation="container", image="app", steps=steps) | {name: value}
    if section is JOB and name == "network":
        return scheduled | {"isolation": "sandbox", name: value}
    if section is STEP and name == "network":
        return scheduled | {"steps": [{"run": "true", "isolation": "sandbox", name: value}]}
    if section is RUN_LIMITS:
        return scheduled | {"limits": {name: value}}
    if section is MOUNT:
        mount = {"source": "/srv", "target": "/srv"} | {name: value}
        return job(isolation="container", image="app", mounts=[mount])
    return None


def plugin_document_with(section: Section, name: str, value: object) -> dict[str, object] | None:
    """A job of a plug-in's type in which the field has the value; None: it is none of theirs."""
    if section is JOB and name == "parameters":
        return job(type="ticket", parameters=value, steps=None)
    return None


def document_with(section: Section, name: str, value: object) -> dict[str, object]:
    """A job in which the field of the section has the value."""
    scheduled = job(schedule="1m")
    if section is JOB and name == "function":
        return job(type="python", function=value, steps=None)
    if section is JOB and name == "type" and value == "python":
        return job(type="python", function="f", steps=None)
    if walled := plugin_document_with(section, name, value) or walled_document_with(
        section, name, value
    ):
        return walled
    is_due = isinstance(value, dict) and "within" in value
    if (
        (name == "after" and not is_due)
        or section is FOLLOW
        or (section is AFTER and name == "jobs")
    ):
        given = job(inputs={name: {"default": "none"} for name in ("rows", "reason")})
        follow = {"job": "first"} | ({name: value} if section is FOLLOW else {})
        return given | ({"after": [follow]} if section is FOLLOW else {"after": value})
    if section is JOB:
        return scheduled | {name: value}
    if section is STEP:
        return scheduled | {"steps": [{"run": "true", name: value}]}
    if section is RATE_LIMIT:
        return scheduled | {"rate_limits": [{"name": "s3-put", name: value}]}
    if section is AFTER:
        return scheduled | {"after": {"jobs": ["first"], name: value}}
    if section is INPUT:
        given = {"type": "choice"} if name == "options" else {}
        return scheduled | {"inputs": {"given": given | {name: value}}}
    return scheduled | {section.title: {name: value}}


def with_default() -> list[Row]:
    return [row for row in rows() if row[1].default is not None and row[0] in OF_JOBS]


def with_example() -> list[tuple[Row, object]]:
    return [
        ((section, row), example)
        for section, row in rows()
        for example in row.examples
        if section in OF_JOBS and row.name not in SHORT  # they have a meaning only together
    ]


@pytest.mark.parametrize("row", with_default(), ids=named)
def test_documented_default_changes_nothing_when_written_out(row: Row) -> None:
    section, field = row
    written = document_with(section, field.name, field.default)
    empty = document_with(section, field.name, None)

    assert read_job(written) == read_job(empty)


@pytest.mark.parametrize(("row", "example"), with_example())
def test_example_is_accepted_and_means_something(row: Row, example: object) -> None:
    section, field = row

    spec = read_job(document_with(section, field.name, example))

    assert spec != read_job(job(schedule="1m"))


@pytest.mark.parametrize("row", [row for row in rows() if not row[1].is_available], ids=named)
def test_field_of_a_later_version_is_refused_by_name(row: Row) -> None:
    section, field = row
    if section is FILE:
        text = file_of(job(), **{field.name: []})
    else:
        text = file_of(document_with(section, field.name, "x"))

    with pytest.raises(Invalid) as caught:
        read_file(text, name="jobs")

    (problem,) = caught.value.problems
    assert problem.message == f'"{field.name}" is not available in this version of Rota'
    assert problem.line is not None


@pytest.mark.parametrize("row", rows(), ids=named)
def test_field_is_documented_in_one_sentence(row: Row) -> None:
    _, field = row

    assert field.doc.endswith(".")
    assert ". " not in field.doc
    assert field.name not in {"on", "off", "yes", "no", "y", "n"}


def test_names_are_unique_in_their_section() -> None:
    for section in (*SECTIONS, DEFAULTS):
        assert len(section.by_name) == len(section.fields)


def test_defaults_cannot_hold_what_makes_a_job_that_job() -> None:
    own = {row.name for row in JOB.fields} - {row.name for row in DEFAULTS.fields}

    assert own >= {"name", "schedule", "steps", "function"}
