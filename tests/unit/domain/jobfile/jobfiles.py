"""Builders of job files, and a short form of what is wrong with one."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import JobFile, read_file, read_job
from rota.domain.spec import JobSpec


def job(**fields: object) -> dict[str, object]:
    """A small valid job with some fields set; `None` takes a field away."""
    document: dict[str, object] = {"name": "tidy", "steps": [{"run": "true"}], **fields}
    return {name: value for name, value in document.items() if value is not None}


def cart(**fields: object) -> dict[str, object]:
    """A small valid cart with some fields set; `None` takes a field away."""
    items = [{"key": "a"}, {"key": "b"}]
    document: dict[str, object] = {"name": "rollout", "job": "tidy", "items": items, **fields}
    return {name: value for name, value in document.items() if value is not None}


def file_of(*jobs: dict[str, object], **fields: object) -> str:
    return json.dumps({**fields, "jobs": list(jobs)}, indent=2)


def spec_of(**fields: object) -> JobSpec:
    return read_job(job(**fields))


def read(text: str) -> JobFile:
    return read_file(dedent(text), name="jobs")


def problems_in(text: str) -> list[Problem]:
    with pytest.raises(Invalid) as caught:
        read(text)
    return list(caught.value.problems)


def errors_in(text: str) -> list[str]:
    return [str(problem) for problem in problems_in(text) if not problem.warning]


def errors_of(**fields: object) -> list[str]:
    """The errors of a job with these fields, each with its path."""
    with pytest.raises(Invalid) as caught:
        read_job(job(**fields))
    return [str(problem) for problem in caught.value.problems]


def by_message(value: object) -> str:
    """Names a case by the message it expects, not by its input."""
    return value if isinstance(value, str) else ""
