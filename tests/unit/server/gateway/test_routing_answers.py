from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType, ModuleType
from typing import Any

import msgspec
import pytest

from rota.api.answers import Answer, Instant, Page
from rota.api.events import Event
from rota.api.runs import RunDetail
from rota.domain.states import RunState
from rota.server import gateway
from rota.server.gateway.routing import describe, encode, fill
from tests.unit.server.gateway.served import Served, job

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.iter_modules(gateway.__path__, f"{gateway.__name__}.")
    if not found.ispkg
]
# What a server always says alike, or only where a list goes on.
CONSTANT: dict[type[Answer], set[str]] = {
    Event: {"specversion", "datacontenttype"},
    Page: {"next_cursor"},
}


def answers_written_in(module: ModuleType) -> Iterator[tuple[ast.Call, type[Answer]]]:
    """Every call of a class of answers in the source of a module."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call):
            kind = named(module, ast.unparse(node.func))
            is_unpacked = any(keyword.arg is None for keyword in node.keywords)
            if isinstance(kind, type) and issubclass(kind, Answer) and not is_unpacked:
                yield node, kind


def named(module: ModuleType, dotted: str) -> object:
    value: object = module
    for part in dotted.split("."):
        value = getattr(value, part, None)
    return value


class Small(Answer, frozen=True, kw_only=True):
    name: str
    state: str = ""
    at: Instant | None = None
    labels: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Stored:
    name: str = "a"
    state: RunState = RunState.QUEUED
    at: datetime | None = None
    secret: str = "hidden"
    labels: Mapping[str, Any] = field(default_factory=dict)


def test_answer_has_the_fields_of_its_names_and_no_others() -> None:
    made = fill(Small, Stored(), name="b")

    assert msgspec.json.decode(encode(made)) == {
        "name": "b",
        "state": "QUEUED",
        "at": None,
        "labels": {},
    }


def test_field_that_nobody_fills_is_an_error_although_it_has_a_default() -> None:
    with pytest.raises(AttributeError):
        fill(Small, object(), name="a", state="", at=None)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_answer_that_is_written_out_names_all_its_fields(module: ModuleType) -> None:
    for call, kind in answers_written_in(module):
        given = {keyword.arg for keyword in call.keywords}
        left_out = set(kind.__struct_fields__) - given - CONSTANT.get(kind, set())

        assert not left_out, f"{module.__name__}:{call.lineno}"


def test_name_that_no_field_has_is_an_error() -> None:
    with pytest.raises(TypeError):
        fill(Small, Stored(), colour="red")


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, 0, 0, 0, 100_000, tzinfo=UTC), "2026-01-01T00:00:00.100000Z"),
        (
            datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=2))),
            "2026-07-01T00:00:00+02:00",
        ),
    ],
)
def test_instants_keep_their_offset(instant: datetime, text: str) -> None:
    assert msgspec.json.decode(encode(fill(Small, Stored(at=instant))))["at"] == text


def test_mappings_of_any_kind_are_objects() -> None:
    made = fill(Small, Stored(labels=MappingProxyType({"a": MappingProxyType({"b": 1})})))

    assert msgspec.json.decode(encode(made))["labels"] == {"a": {"b": 1}}


def test_server_sends_every_field_so_every_field_is_required() -> None:
    _, components = describe([Page[Small]])

    assert components["Small"]["required"] == ["name", "state", "at", "labels"]
    assert components["Page_Small_"]["required"] == ["items", "next_cursor"]
    assert "default" not in components["Small"]["properties"]["state"]


def test_property_may_be_called_default() -> None:
    class Odd(Answer, frozen=True, kw_only=True):
        default: str = ""

    _, components = describe([Odd])

    assert components["Odd"]["required"] == ["default"]
    assert components["Odd"]["properties"]["default"] == {"type": "string"}


@pytest.mark.anyio
async def test_answer_is_sent_with_the_headers_and_the_status_of_its_route(served: Served) -> None:
    await served.apply(job())

    first = await served.post("jobs/tidy/runs", headers={"Idempotency-Key": "k"})
    again = await served.post("jobs/tidy/runs", headers={"Idempotency-Key": "k"})

    assert (first.status_code, again.status_code) == (202, 200)
    assert first.headers["location"] == f"/api/v1/runs/{first.json()['id']}"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["content-length"] == str(len(first.content))


@pytest.mark.anyio
async def test_answer_is_read_as_what_it_was_made_of(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\n")

    sent = (await served.get(f"runs/{run_id}")).content

    run = msgspec.json.decode(sent, type=RunDetail)
    assert (run.state, run.attempts[0].output.lines) == ("COMPLETED", 1)
    assert encode(run) == sent
