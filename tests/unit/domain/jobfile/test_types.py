"""Jobs of types that plug-ins bring, as a file has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.domain.errors import Invalid, Problem
from rota.domain.job import rules_of
from rota.domain.jobfile import read_file, read_job, to_yaml
from rota.domain.jobfile.projects import read_policy
from rota.domain.jobfile.read import with_defaults
from rota.domain.policy import Bounds, excesses
from rota.domain.shape import demand_of, shape_of
from rota.domain.walls import NEW_CLUSTER

TICKET = """\
jobs:
  - name: open
    type: ticket
    parameters:
      queue: OPS
      people: [{name: a}]
"""


def problems(**fields: Any) -> list[Problem]:
    with pytest.raises(Invalid) as refused:
        read_file(json.dumps({"jobs": [{"name": "open", **fields}]}, indent=1), name="jobs")
    return list(refused.value.problems)


def test_a_type_and_its_parameters_are_read_and_written_back() -> None:
    [entry] = read_file(TICKET, name="jobs").jobs

    assert (entry.spec.type, entry.spec.parameters) == (
        "ticket",
        {"queue": "OPS", "people": [{"name": "a"}]},
    )
    [again] = read_file(to_yaml([entry.document]), name="jobs").jobs
    assert again.document == entry.document
    assert read_job(entry.document) == entry.spec


def test_its_runs_want_a_worker_that_has_the_type() -> None:
    [entry] = read_file(TICKET, name="jobs").jobs

    assert demand_of(shape_of(rules_of(entry.spec))).offers == ("type/ticket",)


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("parameters", "queue"), 5, 14),
        (("parameters", "people", "0", "name"), 6, 23),
        (("parameters", "missing"), 5, 7),
        (("type",), 3, 11),
    ],
)
def test_what_is_wrong_with_parameters_has_its_place(
    path: tuple[str, ...], line: int, column: int
) -> None:
    [entry] = read_file(TICKET, name="jobs").jobs

    problem = entry.problem_at(path, "wrong")

    assert (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize("kind", ["Ticket", "2fa", "a b", "x" * 64, "ticket.v2"])
def test_names_of_types_are_checked(kind: str) -> None:
    [problem] = problems(type=kind)

    assert problem.message.startswith("type must be a name of lower case letters")


def test_a_slip_in_a_type_of_rota_s_is_found() -> None:
    [problem] = problems(type="Python", function="a.b")

    assert problem.hint == 'did you mean "python"?'


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "ticket", "steps": [{"run": "x"}]}, '"steps" does not go with type ticket'),
        ({"type": "ticket", "function": "a.b"}, '"function" does not go with type ticket'),
        ({"type": "ticket", "env": {"A": "b"}}, '"env" does not go with type ticket'),
        ({"type": "ticket", "source": {"path": "/a"}}, '"source" does not go with type ticket'),
        ({"type": "ticket", "isolation": "sandbox"}, '"isolation" does not go with type ticket'),
        (
            {"type": "ticket", "http": {"submit": {"url": "https://a"}}},
            '"http" goes with type http',
        ),
        ({"type": "ticket", "inputs": {"a": {"type": "file"}}}, "jobs of type ticket have no work"),
        ({"type": "ticket", "parameters": [1]}, "parameters must be a mapping"),
        ({"type": "ticket", "parameters": {"a": "x" * 70_000}}, "parameters must have at most 64"),
        ({"steps": [{"run": "x"}], "parameters": {}}, '"parameters" go with types of plug-ins'),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], message: str) -> None:
    [problem] = problems(**fields)

    assert problem.message.startswith(message)


def test_it_takes_no_walls_from_below() -> None:
    file = read_file(f"defaults: {{isolation: sandbox, env: {{A: b}}}}\n{TICKET}", name="jobs")

    [entry] = with_defaults(file, {"default": {"network": "outbound"}}, NEW_CLUSTER).jobs

    assert entry.document.keys() == {"name", "project", "type", "parameters"}


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"executors": ["shell"]}, "type ticket is not allowed"),
        ({"executors": ["shell", "ticket"]}, None),
        ({"isolation": ["sandbox"]}, "isolation process is not allowed"),
    ],
)
def test_policies_bound_it(policy: dict[str, Any], message: str | None) -> None:
    [entry] = read_file(TICKET, name="jobs").jobs

    found = [each.message for each in excesses(Bounds(read_policy(policy)), rules_of(entry.spec))]

    assert found == ([] if message is None else [message])


def test_it_may_not_run_where_several_projects_do() -> None:
    """It speaks to its system with what the worker may do, whoever asks."""
    [entry] = read_file(TICKET, name="jobs").jobs
    bounds = Bounds(walled=("default",))

    [excess] = excesses(bounds, rules_of(entry.spec))

    assert excess.message == (
        "jobs of type ticket are work of plain processes, which may not run in pool default: "
        "several projects use it"
    )
    assert "sandbox" not in excess.hint
