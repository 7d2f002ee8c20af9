"""The SDK and the gateway know nothing of one another; here calls are held against routes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import pytest

import rota.sdk
from rota.operations.engine import Engine
from rota.sdk import exchange
from rota.sdk.client import Client
from rota.sdk.events import event_stream
from rota.sdk.exchange import Call
from rota.sdk.runs import log_stream
from rota.sdk.verbs import Verb
from rota.server.gateway.app import create_app
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.parameters import GatewaySettings

CALLS: list[Call[Any]] = [
    Client.list_jobs(name="a*", created_by="me", limit=1, cursor="c"),
    Client.get_job("a"),
    Client.apply("jobs: []", name="n", plan=True, prune=True, if_match="e"),
    Client.validate("jobs: []"),
    Client.submit_job("jobs: []"),
    Client.delete_job("a", if_match="e"),
    Client.get_upload("d"),
    Client.put_upload("d", b"x", 1),
    Client.list_artifacts("r", attempt=1, limit=1, cursor="c"),
    Client.get_artifact("r", "p", attempt=1, step=0),
    Client.pause_job("a", until="t"),
    Client.skip_next("a"),
    Client.resume_job("a"),
    Client.enable_job("a"),
    Client.disable_job("a"),
    Client.get_upcoming("a", count=3),
    Client.get_history("a", limit=1, cursor="c"),
    Client.get_ledger("a", since="s", until="u", limit=1, cursor="c"),
    Client.trigger("a", {"b": 1}, at="t", priority=1, key="k"),
    Client.plan_run("a", {"b": 1}, at="t", priority=1),
    Client.report_run(
        "r", "processing", number=1, attempt=1, message="m", progress=0.5, outputs={}, output="o"
    ),
    Client.trigger_many("a", [{}], key="k"),
    Client.backfill_job("a", "s", "e", only="failed", max_parallel=2, plan=True, key="k"),
    Client.list_runs(
        where="w",
        state="s",
        job="j",
        trigger="t",
        backfill="b",
        cart="c",
        since="s",
        until="u",
        active=True,
        created_by="me",
        limit=1,
        cursor="c",
    ),
    Client.get_run("r"),
    Client.explain("r"),
    Client.get_run_events("r", limit=1, cursor="c"),
    Client.cancel_run("r"),
    Client.retry_run("r"),
    Client.resolve_run("r", "failed"),
    Client.get_log("r", attempt=1, first_line=1, limit=1, tail=1),
    Client.search_log("r", "text", attempt=1, after_line=1, limit=1),
    Client.get_log_page("r", attempt=1, first_line=1, last=1),
    Client.raw_log("r", attempt=1),
    log_stream("r", attempt=1, from_line=1),
    Client.list_events(after=1, tail=1, limit=1),
    event_stream(after=1),
    Client.list_workers(all=True),
    Client.list_job_types(),
    Client.get_job_type("n"),
    Client.drain_worker("w"),
    Client.resume_worker("w"),
    Client.get_cluster(),
    Client.list_servers(all=True),
    Client.list_shards(),
    Client.preview_schedule(["@daily"], timezone="UTC", start="s", count=1),
    Client.list_calendars(limit=1, cursor="c"),
    Client.get_calendar("k"),
    Client.put_calendar("k", {"windows": ["Sat"]}, plan=True, if_match="e"),
    Client.delete_calendar("k", if_match="e"),
    Client.get_calendar_windows("k", start="s", count=1),
    Client.list_projects(limit=1, cursor="c"),
    Client.get_project("n"),
    Client.create_project("n", title="t"),
    Client.change_project("n", title="t", plan=True, etag="e"),
    Client.delete_project("n"),
    Client.list_pools(),
    Client.get_pool("n"),
    Client.put_pool("n", ["a"]),
    Client.get_defaults(),
    Client.change_defaults(isolation="process", network="none"),
    Client.list_roles("n"),
    Client.grant_role("n", "p", "viewer", issuer="i"),
    Client.revoke_role("n", "p", issuer="i"),
    Client.list_installation_roles(principal="p", everywhere=True),
    Client.grant_installation_role("p", "viewer", issuer="i"),
    Client.revoke_installation_role("p", issuer="i"),
    Client.list_principals(limit=1, cursor="c"),
    Client.disable_principal("h"),
    Client.enable_principal("h"),
    Client.list_advice(),
    Client.list_tokens(),
    Client.create_token("n", "viewer", expires_in="1d"),
    Client.revoke_token("t"),
    Client.list_worker_tokens(),
    Client.create_worker_token("n", pool="p", expires_in="1d"),
    Client.revoke_worker_token("t"),
    Client.list_join_tokens(),
    Client.create_join_token(pool="p", uses=2, expires_in="1h"),
    Client.revoke_join_token("t"),
    Client.revoke_worker("w"),
    Client.logout(),
    Client.whoami(),
    Client.get_schema(),
    Client.submit_cart({"name": "n"}, [{"key": "i"}], at="t", key="k"),
    Client.plan_cart({"name": "n"}, [{"key": "i"}], at="t"),
    Client.submit_template("n", {"b": 1}, at="t", key="k"),
    Client.plan_template("n", {"b": 1}, at="t"),
    Client.list_carts(
        where="w", state="s", name="n", active=True, created_by="me", limit=1, cursor="c"
    ),
    Client.get_cart("c"),
    Client.list_cart_items("c", state="s", wave=1, cause="x", key="i", limit=1, cursor="c"),
    Client.list_cart_waves("c", limit=1, cursor="c"),
    Client.list_cart_failure_groups("c", limit=1),
    Client.get_cart_events("c", limit=1, cursor="c"),
    Client.get_cart_cells("c"),
    Client.pause_cart("c"),
    Client.resume_cart("c", allow=1),
    Client.cancel_cart("c", running="finish"),
    Client.approve_cart("c", wave=2),
    Client.retry_cart("c", "all", from_wave=1, keys=["i"], cause="x"),
    Client.edit_cart("c", max_parallel=1, if_match="e"),
    Client.list_cart_templates(limit=1, cursor="c"),
    Client.get_cart_template("m"),
    Client.delete_cart_template("m", if_match="e"),
    Client.rollback_cart("c"),
    Client.plan_rollback("c"),
    Client.forecast("1h", start="s", end="e", measure="m", buckets=1, job="j", created_by="me"),
    Client.list_limits(limit=1, cursor="c"),
    Client.get_limit("n"),
    Client.put_limit("n", tokens=1, per="1s", burst=1, each="job", plan=True),
    Client.delete_limit("n"),
    Client.list_resources(limit=1, cursor="c"),
    Client.get_resource("n"),
    Client.put_resource("n", total=1, plan=True),
    Client.delete_resource("n"),
    Client.get_quota(),
    Client.put_quota(running=1, plan=True),
    Client.delete_quota(),
    Client.list_shares(),
    Client.put_share("s", 2),
    Client.simulate("1h", add_workers={"p": 1}, move={"j": "@daily"}, without=["k"]),
    Client.hold_run("r"),
    Client.release_run("r"),
    Client.reprioritise_run("r", 9),
]


@pytest.fixture(scope="module")
def operations() -> dict[str, dict[str, Any]]:
    """The API's operations, by method and path with its parameters left open."""
    settings = GatewaySettings()
    app = create_app(cast("Engine", None), settings)
    paths = openapi_document(app, settings)["paths"]
    return {
        f"{method.upper()} {pattern(path)}": operation
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def pattern(path: str) -> str:
    """A path whose parameters are called as in `CALLS`."""
    names = {
        "{job}": "a",
        "{run}": "r",
        "{digest}": "d",
        "{path}": "p",
        "{cart}": "c",
        "{template}": "m",
        "{calendar}": "k",
        "{token_id}": "t",
        "{worker}": "w",
        "{name}": "n",
        "{share}": "s",
        "{principal}": "p",
        "{handle}": "h",
    }
    for parameter, name in names.items():
        path = path.replace(parameter, name)
    return path


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_call_is_one_the_server_knows(
    call: Call[Any], operations: dict[str, dict[str, Any]]
) -> None:
    operation = operations[f"{call.method} /api/v1{call.path}"]

    known = {
        parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "query"
    }
    given = {name for name, value in call.query.items() if value is not None}
    assert given | {"project"} <= known


def test_every_call_is_held_against_the_server() -> None:
    made = list(calls_of(rota.sdk))

    assert len(CALLS) == len(made)


def test_every_call_is_a_verb_of_clients() -> None:
    verbs = {name for name, verb in inspect.getmembers_static(Client) if isinstance(verb, Verb)}

    assert verbs == set(calls_of(rota.sdk)) - {"log_stream", "event_stream"}


def calls_of(package: ModuleType) -> Iterator[str]:
    """The names of all functions of a package that make a call; `exchange` has what they use."""
    for found in pkgutil.iter_modules(package.__path__, "rota.sdk."):
        module = importlib.import_module(found.name)
        if module is exchange:
            continue
        for name, function in inspect.getmembers(module, inspect.isfunction):
            is_own = function.__module__ == module.__name__ and not name.startswith("_")
            if is_own and str(function.__annotations__.get("return")).startswith("Call["):
                yield name
