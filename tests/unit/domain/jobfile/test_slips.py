"""Whoever writes a file as another tool would have it is told how Rota does, and that works."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from rota.domain.errors import Invalid
from rota.domain.jobfile import read_cart
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM
from rota.domain.jobfile.declarations import LIMIT, RESOURCE
from rota.domain.jobfile.demands import AFTER, RATE_LIMIT
from rota.domain.jobfile.fields import DEFAULTS, FILE, JOB
from rota.domain.jobfile.files import SOURCE
from rota.domain.jobfile.parts import INPUT, MISFIRE, RETRY, STEP
from rota.domain.jobfile.sections import Section
from rota.domain.jobfile.slips import FILE_ADVICE
from rota.domain.jobfile.text import At, Report
from tests.unit.domain.jobfile.jobfiles import cart, errors_of, problems_in, read, spec_of

OF_JOBS = (DEFAULTS, JOB, STEP, INPUT, RETRY, MISFIRE, SOURCE, AFTER, RATE_LIMIT, LIMIT, RESOURCE)
OF_CARTS = (CART, ITEM, FAILURES, BETWEEN)
ADVISED = (FILE, *OF_JOBS, *OF_CARTS)

Fields = Mapping[str, object]

# What was written, what is said about it, and what somebody writes who does as told.
JOBS: Mapping[str, tuple[Fields, str, Fields]] = {
    "a command": (
        {"run": "make", "steps": None},
        "a command is a step: steps: [{run: COMMAND}]",
        {"steps": [{"run": "make"}]},
    ),
    "steps that are text": (
        {"steps": "make"},
        "write [{run: COMMAND}]",
        {"steps": [{"run": "make"}]},
    ),
    "a step that is text": (
        {"steps": ["make"]},
        "write it as {run: COMMAND}",
        {"steps": [{"run": "make"}]},
    ),
    "steps by name": (
        {"steps": {"build": {"run": "make"}}},
        "begin each entry with a dash: - name: build",
        {"steps": [{"name": "build", "run": "make"}]},
    ),
    "a step that is not in a list": (
        {"steps": {"run": "make"}},
        "begin each entry with a dash",
        {"steps": [{"run": "make"}]},
    ),
    "an action": (
        {"steps": [{"uses": "checkout"}]},
        "a step runs a command: run: COMMAND",
        {"steps": [{"run": "git clone"}]},
    ),
    "a condition": (
        {"steps": [{"run": "make", "when": "always"}]},
        "did you mean if: success, failure or always?",
        {"steps": [{"run": "make", "if": "always"}]},
    ),
    "a folder of a step": (
        {"steps": [{"run": "make", "working-directory": "/srv"}]},
        'did you mean "folder"?',
        {"steps": [{"run": "make", "folder": "srv"}]},
    ),
    "cron": ({"cron": "0 5 * * *"}, 'did you mean "schedule"?', {"schedule": "0 5 * * *"}),
    "cron inside": (
        {"schedule": {"cron": "0 5 * * *"}},
        'write "0 5 * * *" alone, without a name for it',
        {"schedule": "0 5 * * *"},
    ),
    "cron inside a list": (
        {"schedule": [{"cron": "0 5 * * *"}]},
        'write "0 5 * * *" alone, without a name for it',
        {"schedule": ["0 5 * * *"]},
    ),
    "an interval": ({"interval": 10}, "schedule: every 10s", {"schedule": "every 10s"}),
    "retries": ({"retries": 3}, "3 retries are retry: 4", {"retry": 4}),
    "seconds": ({"timeout_seconds": 30}, 'did you mean "timeout"?', {"timeout": "30s"}),
    "dependencies": ({"depends_on": ["up"]}, 'did you mean "after"?', {"after": ["up"]}),
    "dependencies of a pipeline": (
        {"needs": ["up"]},
        'jobs to follow stand under "after"',
        {"after": ["up"]},
    ),
    "needs that are text": (
        {"needs": "fra"},
        'write labels as {site: fra}; jobs to follow stand under "after"',
        {"needs": {"site": "fra"}},
    ),
    "concurrency": ({"concurrency": 2}, 'did you mean "max_concurrency"?', {"max_concurrency": 2}),
    "instances": ({"max_instances": 1}, 'did you mean "max_concurrency"?', {"max_concurrency": 1}),
    "an executor": ({"executor": "big"}, 'did you mean "pool"?', {"pool": "big"}),
    "machines": (
        {"runs-on": "linux"},
        'chosen by "pool" and, by their labels, "needs"',
        {"pool": "linux", "needs": {"site": "fra"}},
    ),
    "a lock": (
        {"mutex": "db"},
        "declare a resource with kind: mutex, and take it: resources: {NAME: 1}",
        {"resources": {"db": 1}},
    ),
    "memory": ({"memory": "1GiB"}, 'write it under "resources"', {"resources": {"memory": "1GiB"}}),
    "a folder": (
        {"working_dir": "/srv"},
        "source: {path: /FOLDER}",
        {"source": {"path": "/srv"}},
    ),
    "a source that is text": (
        {"source": "/srv"},
        "write it as {path: /FOLDER}",
        {"source": {"path": "/srv"}},
    ),
    "a ref beside the address": (
        {"source": {"git": "https://git.example.org/app.git", "ref": "main"}},
        "stands beside its url: git: {url: URL, ref: REF}",
        {"source": {"git": {"url": "https://git.example.org/app.git", "ref": "main"}}},
    ),
    "a branch": (
        {"source": {"git": {"url": "https://git.example.org/app.git", "branch": "main"}}},
        'did you mean "ref"?',
        {"source": {"git": {"url": "https://git.example.org/app.git", "ref": "main"}}},
    ),
    "a request that is for nothing": (
        {"type": "http", "http": {"url": "https://pay.example.org/v1"}, "steps": None},
        "stands below what it is for: submit: {url: URL}",
        {"type": "http", "http": {"submit": {"url": "https://pay.example.org/v1"}}, "steps": None},
    ),
    "a job that sleeps": ({"suspend": True}, "did you mean enabled: false?", {"enabled": False}),
    "variables in a list": (
        {"env": ["A=b"]},
        "write it as {NAME: VALUE}",
        {"env": {"A": "b"}},
    ),
    "inputs in a list": (
        {"inputs": ["host"]},
        "write it as {NAME: {type: string}}",
        {"inputs": {"host": {"type": "string"}}},
    ),
    "an input that is its value": (
        {"inputs": {"host": "db-1"}},
        "write it as {default: all}",
        {"inputs": {"host": {"default": "db-1"}}},
    ),
    "an input that is required": (
        {"inputs": {"host": {"required": True}}},
        "an input without a default has to be given",
        {"inputs": {"host": {}}},
    ),
    "resources in a list": (
        {"resources": ["cpu"]},
        "write it as {NAME: AMOUNT}",
        {"resources": {"cpu": 1}},
    ),
    "a number of tries": (
        {"retry": {"max": 3}},
        'did you mean "attempts"?',
        {"retry": {"attempts": 3}},
    ),
    "a growing pause": (
        {"retry": {"multiplier": 2}},
        "did you mean backoff: exponential?",
        {"retry": {"backoff": "exponential"}},
    ),
    "a policy": ({"misfire": "all"}, "write it as {policy: all}", {"misfire": {"policy": "all"}}),
    "an interpreter that is text": (
        {"steps": [{"run": "1", "interpreter": "perl -w"}]},
        "write its words as a list: [perl, -w]",
        {"steps": [{"run": "1", "interpreter": ["perl", "-w"]}]},
    ),
}

FILES = {
    "a rate": (
        "limits: [{name: api, rate: 10}]",
        "10 a second is tokens: 10, per: 1s",
        "limits: [{name: api, tokens: 10, per: 1s}]",
    ),
    "a time": (
        "limits: [{name: api, tokens: 10, interval: 1s}]",
        'did you mean "per"?',
        "limits: [{name: api, tokens: 10, per: 1s}]",
    ),
    "a limit that is text": (
        "limits: [api]",
        "write it as {name: NAME, tokens: 10, per: 1s}",
        "limits: [{name: api, tokens: 10, per: 1s}]",
    ),
    "a count": (
        "resources: [{name: licence, count: 4}]",
        'did you mean "total"?',
        "resources: [{name: licence, total: 4}]",
    ),
    "jobs by name": (
        "jobs: {build: {steps: [{run: make}]}}",
        "begin each entry with a dash: - name: build",
        "jobs: [{name: build, steps: [{run: make}]}]",
    ),
    "a job alone": (
        "name: build\nsteps: [{run: make}]",
        'a job stands in a list under "jobs"',
        "jobs: [{name: build, steps: [{run: make}]}]",
    ),
    "a cart alone": (
        "name: rollout\nitems: [{key: a}]",
        'a cart stands in a list under "carts"',
        "jobs: [{name: b, steps: [{run: make}]}]\n"
        "carts: [{name: rollout, job: b, items: [{key: a}]}]",
    ),
    "variables for all": (
        "env: {A: b}\njobs: [{name: build, steps: [{run: make}]}]",
        'for every job of the file, write it under "defaults"',
        "defaults: {env: {A: b}}\njobs: [{name: build, steps: [{run: make}]}]",
    ),
    "steps for all": (
        "defaults: {steps: [{run: make}]}\njobs: [{name: build}]",
        "each job has its own: write it there",
        "jobs: [{name: build, steps: [{run: make}]}]",
    ),
    "tasks": (
        "tasks: [{name: build, steps: [{run: make}]}]",
        'did you mean "jobs"?',
        "jobs: [{name: build, steps: [{run: make}]}]",
    ),
}

CARTS = {
    "inputs of an item": ({"items": [{"key": "a", "inputs": {}}]}, 'did you mean "with"?'),
    "name of an item": ({"items": [{"key": "a", "name": "a"}]}, 'did you mean "key"?'),
    "an input itself": ({"items": [{"key": "a", "host": "x"}]}, 'stand under "with"'),
    "items that are text": ({"items": ["db-1"]}, "write it as {key: db-001}"),
    "items that are a mapping": ({"items": {"db-1": {}}}, "with a dash: - key: db-1"),
    "items that are a file": ({"items": "fleet.csv"}, "items_from: FILE"),
    "items of all workers": ({"items": None, "items_from": "workers"}, "write {workers: {}}"),
    "a number in quotes": ({"items": [{"key": "a", "order": "7"}]}, "write 7 without quotes"),
    "steps": ({"steps": []}, 'define that under "jobs"'),
    "a field of jobs": ({"timeout": "5m"}, "a matter of the job"),
    "a field of between": ({"approve": "admin"}, 'write it under "between"'),
    "a limit of failures": ({"failures": "2%"}, "write it as {allow: 2%}"),
    "a fraction": ({"failures": {"allow": 0.02}}, "write 2%"),
    "a percentage that is a number": ({"failures": {"allow": 2.5}}, "write 2.5%"),
}


@pytest.mark.parametrize(("written", "hint", "mended"), JOBS.values(), ids=JOBS)
def test_a_slip_in_a_job_is_told_what_works(written: Fields, hint: str, mended: Fields) -> None:
    assert any(error.endswith(hint) for error in errors_of(**written))

    assert spec_of(**mended).name == "tidy"


@pytest.mark.parametrize(("written", "hint", "mended"), FILES.values(), ids=FILES)
def test_a_slip_in_a_file_is_told_what_works(written: str, hint: str, mended: str) -> None:
    assert hint in {problem.hint for problem in problems_in(written)}

    assert read(mended).project == "default"


@pytest.mark.parametrize(("fields", "hint"), CARTS.values(), ids=CARTS)
def test_a_slip_in_a_cart_is_told_what_is_meant(fields: dict[str, object], hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_cart(cart(**fields))

    assert any(hint in problem.hint for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("field", "alone"),
    [
        ("after", "up"),
        ("rate_limits", "s3-put"),
        ("calendars", "holidays"),
        ("exclusive_by", "host"),
        ("retry", "{when: failed}"),
        ("retry", "{exit_codes: 75}"),
    ],
)
def test_a_value_that_should_be_a_list_is_shown_as_one(field: str, alone: str) -> None:
    text = """
        jobs:
          - {{name: up, steps: [{{run: make}}]}}
          - {{name: a, inputs: {{host: {{default: x}}}}, steps: [{{run: make}}], {}: {}}}
        """

    [problem] = problems_in(text.format(field, alone))

    value = alone.strip("{}").rpartition(" ")[2]
    assert problem.hint == f"write [{value}]"
    mended = read(text.format(field, alone.replace(value, f"[{value}]")))
    assert [entry.spec.name for entry in mended.jobs] == ["up", "a"]


def test_text_is_shown_in_quotes_where_nobody_knows_how_it_was_typed() -> None:
    [error] = errors_of(retry={"when": "failed"})

    assert error.endswith('write ["failed"]')


@pytest.mark.parametrize("value", [256, "many", True])
def test_a_list_of_a_wrong_value_is_not_suggested(value: object) -> None:
    [error] = errors_of(retry={"exit_codes": value})

    assert "write" not in error


@pytest.mark.parametrize("key", ["runs-on", "runsOn", "RUNS_ON"])
def test_keys_are_known_however_they_are_written(key: str) -> None:
    [error] = errors_of(**{key: "linux"})

    assert "workers are chosen by" in error


@pytest.mark.parametrize("section", ADVISED, ids=lambda it: it.title)
def test_slips_are_no_fields_and_what_is_meant_is_one(section: Section) -> None:
    fields, slips = section.by_name.keys(), section.advice.slips
    named = r'(?:did you mean|write it under) "(\w+)"'
    meant = {key for hint in slips.values() for key in re.findall(named, hint)}

    assert not fields & slips.keys()
    assert meant - {"defaults"} <= {row.name for row in section.available}


def test_what_is_for_all_jobs_may_stand_under_defaults() -> None:
    for_all = {slip for slip, hint in FILE_ADVICE.slips.items() if '"defaults"' in hint}

    assert for_all - {"default_args"} <= DEFAULTS.by_name.keys()


@pytest.mark.parametrize("section", ADVISED, ids=lambda it: it.title)
def test_the_short_form_of_a_section_is_valid(section: Section) -> None:
    report = Report()

    if section.advice.form:
        form: Any = yaml.safe_load(section.advice.form)
        section.check(form, At.root(report))

    report.raise_errors(section.title)
