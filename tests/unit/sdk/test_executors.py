"""Executor classes of apps, as a function host calls them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rota import App, NotSubmitted, RemoteRun, Status
from rota.sdk.executors import Hosted

RUN = {
    "id": "r_1",
    "job": "open",
    "project": "shop",
    "attempt": 2,
    "due_micros": 1_700_000_000_000_000,
    "inputs": {"title": "a lamp"},
    "parameters": {"queue": "OPS"},
}


class Ticket:
    every = 3
    schema = {"type": "object"}  # noqa: RUF012 (as people write it)

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def submit(self, run: RemoteRun) -> dict[str, Any]:
        self.seen.append(run)
        if run.inputs["title"] == "nothing":
            raise NotSubmitted("no title")
        return {"id": 7}

    async def status(self, handle: dict[str, Any]) -> Status:
        self.seen.append(handle)
        return Status("processing", progress=0.5)


def called(hosted: Hosted, verb: str, **argument: Any) -> Any:
    [call] = [each for name, each in hosted.functions().items() if name.endswith(f"/{verb}")]
    result = call.fn(call=json.dumps(argument))
    return asyncio.run(result) if call.is_async else result


def test_methods_are_called_with_the_run_and_with_what_names_the_work() -> None:
    hosted = Hosted("ticket", Ticket)

    begun = called(hosted, "submit", run=dict(RUN))
    looked = called(hosted, "status", handle={"id": 7})

    run, handle = hosted.instance().seen
    assert (run.id, run.attempt, run.inputs, run.due_at.year) == ("r_1", 2, RUN["inputs"], 2023)
    assert (begun, handle) == ({"value": {"id": 7}}, {"id": 7})
    assert looked["status"]["state"] == "processing"
    assert looked["status"]["progress"] == 0.5


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("x" * 1_100_000, "over 1 MiB"),
        ('"' * 600_000, "over 1 MiB"),
        (object(), "cannot be carried as JSON"),
    ],
)
def test_an_output_that_cannot_be_kept_does_not_cost_the_end(
    output: object, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Done(Ticket):
        async def status(self, handle: dict[str, Any]) -> Status:
            return Status("completed", output=output)

    told = called(Hosted("ticket", Done), "status", handle={})

    assert (told["status"]["state"], told["status"]["output"]) == ("completed", None)
    assert why in capsys.readouterr().out


def test_what_was_not_submitted_is_no_error() -> None:
    told = called(Hosted("ticket", Ticket), "submit", run=RUN | {"inputs": {"title": "nothing"}})

    assert told == {"not_submitted": "no title"}


def test_a_worker_is_told_how_often_to_look_and_what_there_is() -> None:
    hosted = Hosted("ticket", Ticket)
    told = hosted.described()

    assert (told.name, told.every, told.patience, told.can_cancel) == ("ticket", 3.0, 300.0, False)
    assert json.loads(told.schema) == {"type": "object"}
    assert set(hosted.functions()) == {"ticket/submit", "ticket/status"}


@pytest.mark.parametrize("kind", ["Ticket", "shell", "external", "", "a/b"])
def test_names_that_no_type_can_have_are_refused(kind: str) -> None:
    with pytest.raises(TypeError, match="cannot be the name of a type"):
        App("shop").executor(kind)(Ticket)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"submit": None}, "has no method submit"),
        ({"status": None}, "has no method status"),
        ({"every": 0}, "every must be seconds"),
        ({"patience": "5m"}, "patience must be seconds"),
        ({"schema": []}, "schema must be a mapping"),
    ],
)
def test_classes_that_cannot_be_executors_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        App("shop").executor("ticket")(type("Bad", (Ticket,), fields))


def test_an_app_has_each_type_once_and_jobs_of_it() -> None:
    app = App("shop")
    app.executor("ticket")(Ticket)
    job = app.define("ticket", name="open", parameters={"queue": "OPS"}, schedule="@daily")

    assert app.documents() == [
        {
            "name": "open",
            "type": "ticket",
            "parameters": {"queue": "OPS"},
            "schedule": "@daily",
        }
    ]
    assert app.defined == {"open": job}
    with pytest.raises(ValueError, match="already has an executor of type ticket"):
        app.executor("ticket")(Ticket)
    with pytest.raises(ValueError, match="already has a job open"):
        app.define("ticket", name="open")
    with pytest.raises(TypeError, match="needs a name"):
        app.define("ticket")
