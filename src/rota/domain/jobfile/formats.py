"""Short form of a CI job: `url`, `task`, `format` instead of a source and steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rota.domain.errors import Invalid, did_you_mean, quoted
from rota.domain.git import parse_repository, program_beside, why_not_there
from rota.domain.jobfile.kinds import INVALID, Choice, Text
from rota.domain.jobfile.sections import Either, Field, ListOf
from rota.domain.jobfile.text import At

Document = Mapping[str, Any]

SHORT = ("url", "ref", "task", "format")
_NOT_BESIDE = ("steps", "source", "function", "command")
_VENV = 'if [ -d .venv ]; then PATH="$PWD/.venv/bin:$PATH"; fi\n'
FORMATS: Mapping[str, Mapping[str, str]] = {
    "go": {
        "build": "go build -v ./...",
        "test": "go test -v ./...",
        "vet": "go vet ./...",
    },
    "python": {
        "install": "python3 -m venv .venv\n.venv/bin/python -m pip install .",
        "build": f"{_VENV}python3 -m pip wheel --no-deps --wheel-dir dist .",
        "test": f"{_VENV}python3 -m pytest",
        "lint": f"{_VENV}python3 -m ruff check .",
    },
    "node": {
        "install": "npm ci",
        "build": "npm run build",
        "test": "npm test",
        "lint": "npm run lint",
    },
    "make": {},  # any target
}
_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", re.ASCII)
_TASK = Text("the name of a task", 100, pattern=_TARGET.pattern)
REF = Text(
    "a branch, a tag or a commit",
    250,
    pattern=r"[^\x00-\x20\x7f~^:?*\[\\-][^\x00-\x20\x7f~^:?*\[\\]*",
)

SHORT_FORM = (
    Field(
        "url",
        Text("the address of a Git repository", 2_000, pattern=r"[^\x00-\x20\x7f]+"),
        "The repository of a CI job, with `task` and `format` instead of `source` and `steps`.",
        examples=("https://git.example.org/team/app.git",),
        shared=False,
    ),
    Field("ref", REF, "Beside `url`: its branch, tag or commit.", examples=("main",), shared=False),
    Field(
        "task",
        Either(_TASK, ListOf(_TASK, most=20, least=1)),
        "Beside `url`: what is done, a step each: "
        + "; ".join(f"{name}: {', '.join(tasks)}" for name, tasks in FORMATS.items() if tasks)
        + "; make: any target.",
        examples=("test", ["build", "test"]),
        shared=False,
    ),
    Field(
        "format", Choice(tuple(FORMATS)), "Beside `url`: how these tasks are done.", shared=False
    ),
)


def with_steps(document: Document) -> dict[str, Any]:
    """Return a job whose short form is the source and the steps that it stands for."""
    found = dict(document)
    if not _is_whole(found):
        return found
    tasks = _tasks(found)
    language, git = found["format"], {"url": found["url"]}
    if "ref" in found:
        git["ref"] = found["ref"]
    steps = [{"name": task, "run": _command(language, task)} for task in tasks]
    for name in SHORT:
        found.pop(name, None)
    return found | {"source": {"git": git}, "steps": steps}


def _is_whole(document: Document) -> bool:
    """Return whether nothing is wrong with a short form, so that it can be replaced."""
    if not {"url", "task", "format"} <= document.keys() or document.keys() & set(_NOT_BESIDE):
        return False
    tasks = _tasks(document)
    return INVALID not in tasks and all(_command(document["format"], task) for task in tasks)


def _tasks(document: Document) -> list[Any]:
    tasks = document.get("task", [])
    return tasks if isinstance(tasks, list) else [tasks]


def _command(language: str, task: str) -> str:
    """Return what a task does; "": the format has none of that name."""
    return f"make {task}" if language == "make" else FORMATS[language].get(task, "")


def check_short_form(document: Document, written: Mapping[str, object], at: At) -> None:
    """Report what is wrong with the short form of a job."""
    given = [name for name in SHORT if written.get(name) is not None]
    if not given:
        return
    for name in _NOT_BESIDE:
        if written.get(name) is not None:
            message = f"{quoted(name)} does not go with {quoted(given[0])}, which stands for it"
            at.child(name).refuse_key(message, "leave out one of them")
    for name in ("url", "task", "format"):
        if written.get(name) is None:
            example = {"url": "https://…", "task": "[build, test]", "format": "go"}[name]
            at.child(given[0]).refuse_key(
                f"{quoted(given[0])} needs {quoted(name)} beside it", f"write {name}: {example}"
            )
    language = document.get("format")
    if language is None or language is INVALID:
        return
    for index, task in enumerate(_tasks(document)):
        if task is not INVALID and not _command(language, task):
            known = FORMATS[language]
            place = at.child("task")
            hint = did_you_mean(task, known) or f"it has {', '.join(known)}; or write steps"
            (place.child(index) if place.child(index).mark else place).refuse(
                f"format {language} has no task {quoted(task)}", hint
            )


def check_code(document: Document, written: Mapping[str, object], at: At) -> None:
    """Report an address that no worker would fetch from, and code that nothing brings along."""
    source = document.get("source")
    git = source.get("git") if isinstance(source, Mapping) else None
    if isinstance(git, Mapping) and "url" in git:
        short = at.child("url")
        place = short if written.get("url") else at.child("source").child("git").child("url")
        try:
            parse_repository(git["url"], allows_http=True)
        except Invalid as error:
            place.refuse(str(error), error.hint or "write https://HOST/PATH or ssh://git@HOST/PATH")
    steps = document.get("steps", ())
    if source is None and written.get("source") is None and steps and steps[0] is not INVALID:
        run = steps[0].get("run", "")
        program = program_beside(tuple(run) if isinstance(run, list) else run)
        if program and INVALID not in (run if isinstance(run, list) else ()):
            at.child("steps").child(0).child("run").warn(why_not_there(program))
