"""Every call of the contracts, by every caller, in their own, a foreign and a missing project."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from rota import contracts
from rota.contracts import carts_pb2, client_pb2
from rota.domain.access import INSTALLATION, Rights, Role, TokenTerms, Verb, combined
from rota.operations.tokens import create_token
from rota.server.gateway.auth import Need, Where
from rota.server.gateway.parameters import GatewaySettings
from rota.server.gateway.rpc.carts import CartsService
from rota.server.gateway.rpc.scheduler import SchedulerService
from rota.server.gateway.rpc.server import check_declared
from testkit.identity import disable, make_project
from tests.unit.server.gateway.rpc.conftest import Calls, calling, problem_of

pytestmark = pytest.mark.anyio

OWN, FOREIGN, MISSING = "etl", "web", "nope"
SERVICES = (
    (SchedulerService, client_pb2, "Scheduler"),
    (CartsService, carts_pb2, "Carts"),
)
CALLERS = {
    **{
        f"{role} of {scope}": Rights(combined([(scope, role)]), role, scope)
        for scope in (OWN, FOREIGN)
        for role in Role
    },
    **{f"{role} of all": Rights(combined([(INSTALLATION, role)]), role) for role in Role},
    "reader": Rights(combined([(OWN, Role.ADMIN)]), Role.ADMIN, OWN, frozenset({Verb.READ})),
}


def declared() -> dict[str, tuple[MethodDescriptor, Any, Need]]:
    """All calls that name a project, with what they need."""
    return {
        method.name: (method, contract, getattr(service, method.name).need)
        for service, contract, name in SERVICES
        for method in contract.DESCRIPTOR.services_by_name[name].methods
        if method.name != "Watch"
    }


def request_for(method: MethodDescriptor, contract: Any, project: str) -> Any:
    message = getattr(contract, method.input_type.name)()
    if not method.client_streaming:
        message.project = project
        return message
    message.header.project = project
    return _one(message)


async def _one(message: Any) -> AsyncIterator[Any]:
    yield message


def expected(rights: Rights, need: Need, project: str) -> tuple[grpc.StatusCode, str] | None:
    """How the call is refused before its request is looked at; None: it is not."""
    role = rights.role_in(project)
    if need.where is Where.FILE and rights.projects(need.role) != () and rights.allows(need.verb):
        return None
    if role is None or project == MISSING:
        return grpc.StatusCode.NOT_FOUND, "project_not_found"
    is_narrowed = rights.verbs is not None and need.verb not in rights.verbs
    if role.includes(need.role) and not is_narrowed:
        return None
    return grpc.StatusCode.PERMISSION_DENIED, "forbidden"


async def outcome(calls: Calls, name: str, request: Any, secret: str) -> tuple[Any, str, str]:
    """Status, code and message of a refusal; with empty texts if it was none."""
    try:
        await calls.begin_with(name, request, secret)
    except grpc.aio.AioRpcError as error:
        status, problem = problem_of(error)
        return status, problem.code, problem.message
    return grpc.StatusCode.OK, "", ""


async def secrets_of(calls: Calls) -> dict[str, str]:
    store = calls.served.engine.store
    await make_project(store, OWN, FOREIGN)
    secrets = {}
    for name, rights in CALLERS.items():
        terms = TokenTerms(rights.project, rights.verbs)
        _, secrets[name] = await create_token(
            store, name=name, role=rights.ceiling, actor="test", terms=terms
        )
    return secrets


async def test_every_call_is_for_those_whom_it_declares(calls: Calls) -> None:
    secrets = await secrets_of(calls)
    wrong = {}
    for name, (method, contract, need) in declared().items():
        for caller, rights in CALLERS.items():
            for project in (OWN, FOREIGN, MISSING):
                request = request_for(method, contract, project)
                told = (await outcome(calls, name, request, secrets[caller]))[:2]
                refused = expected(rights, need, project)
                is_let_in = told[1] not in {"forbidden", "project_not_found", "unauthenticated"}
                if told != refused if refused else not is_let_in:
                    wrong[name, caller, project] = told, refused

    assert len(declared()) > 20
    assert not wrong


async def test_a_foreign_project_answers_as_one_that_is_not_there(calls: Calls) -> None:
    secret = (await secrets_of(calls))[f"admin of {OWN}"]

    for name, (method, contract, need) in declared().items():
        if need.where is Where.FILE:
            continue
        foreign, missing = [
            await outcome(calls, name, request_for(method, contract, project), secret)
            for project in (FOREIGN, MISSING)
        ]

        assert foreign[2].replace(FOREIGN, MISSING) == missing[2]
        assert foreign[:2] == missing[:2] == (grpc.StatusCode.NOT_FOUND, "project_not_found")


async def test_whoever_is_disabled_is_unknown(calls: Calls) -> None:
    secrets = await secrets_of(calls)
    await disable(calls.served.engine.store, "admin of all")

    for name, (method, contract, _) in declared().items():
        request = request_for(method, contract, OWN)
        told = await outcome(calls, name, request, secrets["admin of all"])
        assert told[:2] == (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")


async def test_jobs_of_another_project_cannot_be_submitted_in_a_file(calls: Calls) -> None:
    secret = (await secrets_of(calls))[f"admin of {OWN}"]
    file = "jobs:\n- {name: x, project: web, steps: [run: 'true']}\n"
    request = client_pb2.SubmitJobRequest(project=OWN, yaml=file)

    told = await outcome(calls, "SubmitJob", request, secret)

    assert told[:2] == (grpc.StatusCode.NOT_FOUND, "project_not_found")


def test_every_service_of_the_contracts_is_in_this_matrix_or_for_workers() -> None:
    modules = [
        importlib.import_module(f"rota.contracts.{module.name}")
        for module in pkgutil.iter_modules(contracts.__path__)
        if module.name.endswith("_pb2")
    ]
    described = {name for each in modules for name in each.DESCRIPTOR.services_by_name}

    assert described == {name for _, _, name in SERVICES} | {"Workers"}


@pytest.mark.parametrize("project", [FOREIGN, MISSING])
async def test_only_projects_count_in_which_a_file_changes_something(
    calls: Calls, project: str
) -> None:
    secret = (await secrets_of(calls))[f"editor of {OWN}"]
    told = []
    for names in ("project: etl, ", ""):
        file = f"jobs:\n- {{name: x, {names}steps: [run: 'true']}}\n"
        request = client_pb2.SubmitJobRequest(project=project, yaml=file)
        told.append((await outcome(calls, "SubmitJob", request, secret))[:2])

    assert told == [
        (grpc.StatusCode.OK, ""),
        (grpc.StatusCode.NOT_FOUND, "project_not_found"),
    ]


async def test_nobody_submits_for_another_where_they_are_no_admin(calls: Calls) -> None:
    store = calls.served.engine.store
    await secrets_of(calls)
    _, secret = await create_token(store, name="both", role=Role.ADMIN, actor="test")
    for scope, role in ((OWN, Role.ADMIN), (FOREIGN, Role.EDITOR), (INSTALLATION, Role.VIEWER)):
        await store.bind("both", scope, role, actor="test")
    file = "jobs:\n- {name: x, project: web, steps: [run: 'true']}\n"
    request = client_pb2.SubmitJobRequest(project=OWN, yaml=file, user="somebody")

    told = await outcome(calls, "SubmitJob", request, secret)

    assert told[:2] == (grpc.StatusCode.PERMISSION_DENIED, "forbidden")


@pytest.mark.parametrize(("service", "contract", "name"), SERVICES)
def test_a_service_with_a_call_that_declares_nothing_does_not_start(
    service: type, contract: Any, name: str
) -> None:
    described = contract.DESCRIPTOR.services_by_name[name]
    last = described.methods[-1].name

    class Gap(service):  # type: ignore[misc]
        pass

    async def forgotten(*_: object) -> None: ...

    setattr(Gap, last, forgotten)
    check_declared(service, described)
    with pytest.raises(LookupError, match=f"{last} does not declare"):
        check_declared(Gap, described)


class TestWrongSecrets:
    """They are counted with those of REST, and are never held against a right one."""

    async def guess(self, calls: Calls, secret: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await calls.begin_with("GetDueJobs", client_pb2.GetDueJobsRequest(), secret)
        status, problem = problem_of(refusal.value)
        return status, problem.code

    async def test_guesses_are_bounded_on_both_ways_together(
        self, tmp_path: Path, anyio_backend: str
    ) -> None:
        settings = GatewaySettings(wrong_secrets=4)
        async with calling(tmp_path, settings) as calls:
            guesser = await calls.served.browser({"Authorization": "Bearer rotat_wrong"})
            by_rest = [(await guesser.get("/api/v1/jobs")).status_code for _ in range(3)]

            by_rpc = [await self.guess(calls, f"rotat_{number}") for number in range(3)]

            too_many = (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_many_logins")
            assert by_rest == [401] * 3
            assert by_rpc == [
                (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated"),
                too_many,
                too_many,
            ]
            assert (await guesser.get("/api/v1/jobs")).status_code == 429
            assert (
                await calls("GetDueJobs", client_pb2.GetDueJobsRequest(), Role.VIEWER) is not None
            )

    async def test_one_secret_is_bounded_wherever_it_comes_from(
        self, tmp_path: Path, anyio_backend: str
    ) -> None:
        settings = GatewaySettings(wrong_secrets=2, trusted_proxies=(ip_network("127.0.0.0/8"),))
        async with calling(tmp_path, settings) as calls:
            codes = [
                await self.guess_by_proxy(calls, f"192.0.2.{number}", secret)
                for number, secret in enumerate(["rotat_abcdefgh"] * 3 + ["rotat_another"])
            ]

        assert codes == ["unauthenticated"] * 2 + ["too_many_logins", "unauthenticated"]

    async def guess_by_proxy(self, calls: Calls, client: str, secret: str) -> str:
        [stub] = [each for each in calls._stubs if hasattr(each, "GetDueJobs")]
        metadata = (("authorization", f"Bearer {secret}"), ("x-forwarded-for", client))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await stub.GetDueJobs(client_pb2.GetDueJobsRequest(), metadata=metadata, timeout=20)
        return problem_of(refusal.value)[1].code
