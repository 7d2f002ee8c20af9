"""The short form of a CI job, and code that nothing brings along."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.jobfile import read_file, read_job
from rota.domain.spec import Git

URL = "https://git.example.org/team/app.git"


def short(**fields: Any) -> str:
    lines = {"url": URL, "task": "[build, test]", "format": "go"} | fields
    body = "".join(f"\n    {name}: {value}" for name, value in lines.items() if value)
    return f"jobs:\n  - name: ci{body}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        read_file(text, name="ci")
    return [f"{each.path}: {each.message}" for each in refused.value.problems]


@pytest.mark.parametrize(
    ("language", "task", "commands"),
    [
        ("go", "[build, test]", ["go build -v ./...", "go test -v ./..."]),
        ("node", "[install, test]", ["npm ci", "npm test"]),
        ("make", "all", ["make all"]),
    ],
)
def test_each_task_is_a_step(language: str, task: str, commands: list[str]) -> None:
    [entry] = read_file(short(format=language, task=task, ref="main"), name="ci").jobs

    assert [step.run for step in entry.spec.steps] == commands
    assert entry.spec.git == Git(URL, "main")
    # What is kept and shown is what it stands for.
    assert entry.document["source"] == {"git": {"url": URL, "ref": "main"}}
    assert not {"url", "task", "format", "ref"} & entry.document.keys()
    assert read_job(entry.document) == entry.spec


def test_tasks_of_python_use_the_environment_that_install_made() -> None:
    [entry] = read_file(short(format="python", task="[install, test]"), name="ci").jobs

    install, test = (str(step.run) for step in entry.spec.steps)
    assert "python3 -m venv .venv" in install
    assert test.startswith("if [ -d .venv ]")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"task": "[biuld]"}, 'format go has no task "biuld"'),
        ({"format": ""}, '"url" needs "format" beside it'),
        ({"task": ""}, '"url" needs "task" beside it'),
        ({"url": ""}, '"task" needs "url" beside it'),
        ({"steps": "[{run: make}]"}, '"steps" does not go with "url"'),
        ({"source": "{path: /srv}"}, '"source" does not go with "url"'),
        ({"url": "git://git.example.org/app"}, "git is not https"),
        ({"url": "https://me:word@git.example.org/app"}, "a user or password before the host"),
    ],
)
def test_what_is_wrong_is_told_where_it_is(fields: dict[str, Any], problem: str) -> None:
    found = problems(short(**fields))

    assert len(found) == 1
    assert problem in found[0]
    assert found[0].startswith("jobs[0].")


def test_an_address_in_the_long_form_is_checked_too() -> None:
    text = "jobs: [{name: a, source: {git: 'file:///srv/app'}, steps: [{run: make}]}]"

    [problem] = problems(text)

    assert problem.startswith("jobs[0].source")
    assert "file is not https" in problem


@pytest.mark.parametrize(
    ("job", "is_warned"),
    [
        ("steps: [{run: ./ship.sh}]", True),
        ("steps: [{run: [./ship.sh, --all]}]", True),
        ("steps: [{run: make}, {run: ./ship.sh}]", False),
        ("steps: [{run: ./ship.sh}], source: {path: /srv}", False),
        (f"steps: [{{run: ./ship.sh}}], source: {{git: '{URL}'}}", False),
    ],
)
def test_a_program_that_nothing_brings_along_is_a_warning(job: str, is_warned: bool) -> None:
    file = read_file(f"jobs: [{{name: a, {job}}}]", name="ci")

    told = [each.message for each in file.warnings]
    assert any("fresh, empty folder" in each for each in told) is is_warned


def test_the_source_of_the_defaults_is_one() -> None:
    text = (
        f"defaults: {{source: {{git: '{URL}'}}}}\njobs: [{{name: a, steps: [{{run: ./ship.sh}}]}}]"
    )

    assert read_file(text, name="ci").warnings == ()
