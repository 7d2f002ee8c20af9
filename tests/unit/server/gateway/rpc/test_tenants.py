"""What programs of one project find out about another one over gRPC: nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from rota.contracts import carts_pb2, client_pb2
from tests.unit.server.gateway.recorded import Recorded, follow
from tests.unit.server.gateway.rpc.conftest import Calls, problem_of
from tests.unit.server.gateway.tenants import MARK, OURS, THEIRS, Tenants, settle

pytestmark = pytest.mark.anyio

_READS = ("Get", "List", "Retrieve")


@pytest.fixture
async def tenants(calls: Calls, tmp_path: Path) -> Tenants:
    return await settle(calls.served, tmp_path / "rota.db")


def reading_calls() -> list[tuple[str, type[Any]]]:
    """Every call that looks at something and answers once, with its request."""
    found = [
        (call.name, getattr(module, call.input_type.name))
        for module, service in ((client_pb2, "Scheduler"), (carts_pb2, "Carts"))
        for call in module.DESCRIPTOR.services_by_name[service].methods
        if call.name.startswith(_READS)
    ]
    assert len(found) > 8
    return found


def request(kind: type[Any], project: str, names: dict[str, str]) -> Any:
    """A request about things of these names."""
    fields = {field.name for field in kind.DESCRIPTOR.fields}
    asked = {name: names[name] for name in ("job", "run", "cart") if name in fields}
    return kind(project=project, **asked)


async def ask(calls: Calls, tenants: Tenants, name: str, message: Any) -> Any:
    """The answer to a member of our project, or how the call is refused."""
    [method] = [getattr(stub, name) for stub in calls._stubs if hasattr(stub, name)]
    call = method(message, metadata=_credential(tenants), timeout=20)
    try:
        return await (call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call)
    except grpc.aio.AioRpcError as error:
        return problem_of(error)


def _credential(tenants: Tenants) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {tenants.secret}"),)


async def test_no_call_names_anything_of_another_project(calls: Calls, tenants: Tenants) -> None:
    for name, kind in reading_calls():
        answer = await ask(calls, tenants, name, request(kind, OURS, tenants.ours))

        assert not isinstance(answer, tuple), (name, answer)
        assert not {each for each in tenants.marked if each in str(answer)}, (name, answer)


async def test_their_things_are_not_found_by_any_call(calls: Calls, tenants: Tenants) -> None:
    for name, kind in reading_calls():
        fields = {field.name for field in kind.DESCRIPTOR.fields}
        if not fields & {"job", "run", "cart"}:
            continue
        refused = await ask(calls, tenants, name, request(kind, OURS, tenants.theirs))

        assert refused[0] is grpc.StatusCode.NOT_FOUND, name


NAMING = ("job", "run", "cart")  # fields that say what a call is about
_COMPLETED = client_pb2.REPORTED_STATUS_COMPLETED


def naming_calls() -> list[tuple[str, type[Any]]]:
    """Every call about a job, a run or a cart that is there, with its message."""
    return [
        (call.name, getattr(module, call.input_type.name))
        for module, service in ((client_pb2, "Scheduler"), (carts_pb2, "Carts"))
        for call in module.DESCRIPTOR.services_by_name[service].methods
        if any(
            field.name in NAMING and field.message_type is None for field in call.input_type.fields
        )
    ]


@pytest.mark.parametrize("way", ["id", "name", "beginning"])
async def test_what_is_theirs_costs_what_was_never_made_costs(
    calls: Calls, tenants: Tenants, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    recorded, found = Recorded(), {}
    theirs = {name: named(tenants.theirs, name, way) for name in NAMING}
    never = {name: made_up(each) for name, each in theirs.items()}
    follow(calls.served.engine.store, recorded, monkeypatch)
    for _ in range(2):  # the first time nobody knows since when rights are as they are
        await ask(calls, tenants, "GetJob", request(client_pb2.GetJobRequest, OURS, never))

    for name, kind in naming_calls():
        costs = []
        for things in (theirs, never):
            message = request(kind, OURS, things)
            if "status" in kind.DESCRIPTOR.fields_by_name:
                message.status = _COMPLETED
            recorded.clear()
            refused = await ask(calls, tenants, name, message)
            assert refused[0] is grpc.StatusCode.NOT_FOUND, (name, refused)
            costs.append((recorded.round_trips, [*recorded.statements]))
        found[name] = costs

    assert len(found) > 12
    assert [name for name, (there, absent) in found.items() if there != absent] == []


def named(things: dict[str, str], what: str, way: str) -> str:
    """How a thing is called by its id or name, or by the beginning of its id."""
    if way == "beginning" and what != "job":
        return things[what][: {"run": 16, "cart": 8}[what]]
    return things["job id"] if way == "id" and what == "job" else things[what]


def made_up(name: str) -> str:
    """What a thing would be called that was never made."""
    kind, separator, rest = name.partition("_")
    return f"{kind}_{'z' * len(rest)}" if separator else name.replace(MARK, "xw3k")


async def test_their_project_is_as_one_that_is_not_there(calls: Calls, tenants: Tenants) -> None:
    for name, kind in reading_calls():
        there, absent = [
            await ask(calls, tenants, name, request(kind, project, tenants.ours))
            for project in (THEIRS, "made-up")
        ]

        assert there[0] is absent[0] is grpc.StatusCode.NOT_FOUND, name
        assert str(there[1]).replace(THEIRS, "made-up") == str(absent[1])


def foreign_file(job: str, **more: object) -> str:
    """A file of their project, whose one job is of ours."""
    ours = {"name": job, "project": OURS, "steps": [{"run": "true"}]}
    return json.dumps({"project": THEIRS, "jobs": [ours], **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"calendars": [{"name": "sneaked", "windows": ["daily 22:00-06:00"]}]},
        {"limits": [{"name": "sneaked", "tokens": 1, "per": "1h", "each": "job"}]},
        {"resources": [{"name": "sneaked", "total": 1}]},
        {"carts": [{"name": "sneaked", "job": f"{MARK}-tidy", "items": [{"key": "a"}]}]},
    ],
    ids=["nothing else", "calendar", "limit", "resource", "cart"],
)
async def test_an_update_of_a_job_of_ours_changes_nothing_of_theirs(
    calls: Calls, tenants: Tenants, more: dict[str, Any]
) -> None:
    job = tenants.ours["job"]
    update = client_pb2.UpdateJobRequest(project=OURS, job=job, yaml=foreign_file(job, **more))
    admin = await calls.served.client()

    refused = await ask(calls, tenants, "UpdateJob", update)

    assert refused[0] is grpc.StatusCode.INVALID_ARGUMENT
    for noun in ("calendars", "limits", "resources", "cart-templates"):
        there = await admin.get(f"/api/v1/{noun}", params={"project": THEIRS})
        assert "sneaked" not in there.text


@pytest.mark.parametrize("project", [OURS, "*"])
async def test_watching_tells_only_ours(calls: Calls, tenants: Tenants, project: str) -> None:
    message = client_pb2.WatchRequest(after=0, project=project)
    [method] = [stub.Watch for stub in calls._stubs if hasattr(stub, "Watch")]
    heard: list[client_pb2.Event] = []

    watching = method(message, metadata=_credential(tenants))
    async with asyncio.timeout(10):
        async for answer in watching:
            if not answer.events:
                break
            heard += answer.events
    watching.cancel()

    assert {event.project for event in heard} == {OURS}
    assert not {each for each in tenants.marked if each in str(heard)}


@pytest.mark.parametrize("project", [THEIRS, "", "made-up"])
async def test_a_project_without_a_role_cannot_be_watched(
    calls: Calls, tenants: Tenants, project: str
) -> None:
    [method] = [stub.Watch for stub in calls._stubs if hasattr(stub, "Watch")]
    watching = method(
        client_pb2.WatchRequest(after=0, project=project), metadata=_credential(tenants)
    )

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await watching.read()

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
