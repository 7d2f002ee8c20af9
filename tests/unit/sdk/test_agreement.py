"""The SDK and the gateway know nothing of one another; here calls are held against routes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import pytest

from rota.operations.backends import Backends
from rota.sdk import (
    calendar_calls,
    calls,
    cart_calls,
    cart_template_calls,
    forecast_calls,
    limit_calls,
    simulation_calls,
    steering_calls,
    token_calls,
)
from rota.sdk.exchange import Call
from rota.server.gateway.app import create_app
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.settings import GatewaySettings

CALLS: list[Call[Any]] = [
    calls.list_jobs(name="a*", limit=1, cursor="c"),
    calls.get_job("a"),
    calls.apply("jobs: []", name="n", plan=True, prune=True, if_match="e"),
    calls.validate("jobs: []"),
    calls.submit_job("jobs: []"),
    calls.delete_job("a", if_match="e"),
    calls.pause_job("a", until="t"),
    calls.skip_next("a"),
    calls.resume_job("a"),
    calls.enable_job("a"),
    calls.disable_job("a"),
    calls.get_upcoming("a", count=3),
    calls.get_history("a", limit=1, cursor="c"),
    calls.get_ledger("a", since="s", until="u", limit=1, cursor="c"),
    calls.trigger("a", {"b": 1}, at="t", priority=1, key="k"),
    calls.trigger_many("a", [{}], key="k"),
    calls.backfill_job("a", "s", "e", only="failed", max_parallel=2, plan=True, key="k"),
    calls.list_runs(
        where="w",
        state="s",
        job="j",
        trigger="t",
        backfill="b",
        cart="c",
        since="s",
        until="u",
        active=True,
        limit=1,
        cursor="c",
    ),
    calls.get_run("r"),
    calls.explain("r"),
    calls.get_run_events("r", limit=1, cursor="c"),
    calls.cancel_run("r"),
    calls.retry_run("r"),
    calls.resolve_run("r", "failed"),
    calls.get_log("r", attempt=1, first_line=1, limit=1, tail=1),
    calls.search_log("r", "text", attempt=1, after_line=1, limit=1),
    calls.raw_log("r", attempt=1),
    calls.log_stream("r", attempt=1, from_line=1),
    calls.list_events(after=1, limit=1),
    calls.event_stream(after=1),
    calls.list_workers(all=True),
    calls.drain_worker("w"),
    calls.resume_worker("w"),
    calls.get_cluster(),
    calls.list_servers(all=True),
    calls.list_shards(),
    calls.preview_schedule(["@daily"], timezone="UTC", start="s", count=1),
    calendar_calls.list_calendars(limit=1, cursor="c"),
    calendar_calls.get_calendar("k"),
    calendar_calls.put_calendar("k", {"windows": ["Sat"]}, plan=True, if_match="e"),
    calendar_calls.delete_calendar("k", if_match="e"),
    calendar_calls.get_calendar_windows("k", start="s", count=1),
    token_calls.list_tokens(),
    token_calls.create_token("n", "viewer", expires_in="1d"),
    token_calls.revoke_token("t"),
    token_calls.list_worker_tokens(),
    token_calls.create_worker_token("n", pool="p", expires_in="1d"),
    token_calls.revoke_worker_token("t"),
    token_calls.whoami(),
    calls.get_schema(),
    cart_calls.submit_cart({"name": "n"}, [{"key": "i"}], at="t", key="k"),
    cart_calls.plan_cart({"name": "n"}, [{"key": "i"}], at="t"),
    cart_calls.submit_template("n", {"b": 1}, at="t", key="k"),
    cart_calls.plan_template("n", {"b": 1}, at="t"),
    cart_calls.list_carts(where="w", state="s", name="n", active=True, limit=1, cursor="c"),
    cart_calls.get_cart("c"),
    cart_calls.list_cart_items("c", state="s", wave=1, cause="x", key="i", limit=1, cursor="c"),
    cart_calls.list_cart_waves("c", limit=1, cursor="c"),
    cart_calls.list_cart_failure_groups("c", limit=1),
    cart_calls.get_cart_events("c", limit=1, cursor="c"),
    cart_calls.get_cart_cells("c"),
    cart_calls.pause_cart("c"),
    cart_calls.resume_cart("c", allow=1),
    cart_calls.cancel_cart("c", running="finish"),
    cart_calls.approve_cart("c", wave=2),
    cart_calls.retry_cart("c", "all", from_wave=1, keys=["i"], cause="x"),
    cart_calls.edit_cart("c", max_parallel=1, if_match="e"),
    cart_template_calls.list_cart_templates(limit=1, cursor="c"),
    cart_template_calls.get_cart_template("m"),
    cart_template_calls.delete_cart_template("m", if_match="e"),
    cart_template_calls.rollback_cart("c"),
    cart_template_calls.plan_rollback("c"),
    forecast_calls.forecast("1h", start="s", end="e", measure="m", buckets=1, job="j"),
    limit_calls.list_limits(limit=1, cursor="c"),
    limit_calls.get_limit("n"),
    limit_calls.put_limit("n", tokens=1, per="1s", burst=1, each="job", plan=True),
    limit_calls.delete_limit("n"),
    limit_calls.list_resources(limit=1, cursor="c"),
    limit_calls.get_resource("n"),
    limit_calls.put_resource("n", total=1, plan=True),
    limit_calls.delete_resource("n"),
    limit_calls.get_quota(),
    limit_calls.put_quota(running=1, plan=True),
    limit_calls.delete_quota(),
    limit_calls.list_shares(),
    limit_calls.put_share("s", 2),
    simulation_calls.simulate("1h", add_workers={"p": 1}, move={"j": "@daily"}, without=["k"]),
    steering_calls.hold_run("r"),
    steering_calls.release_run("r"),
    steering_calls.reprioritise_run("r", 9),
]


@pytest.fixture(scope="module")
def operations() -> dict[str, dict[str, Any]]:
    """The API's operations, by method and path with its parameters left open."""
    settings = GatewaySettings()
    app = create_app(cast("Backends", None), settings)
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
        "{cart}": "c",
        "{template}": "m",
        "{calendar}": "k",
        "{token_id}": "t",
        "{worker}": "w",
        "{name}": "n",
        "{share}": "s",
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
    modules = (
        calendar_calls,
        calls,
        cart_calls,
        cart_template_calls,
        forecast_calls,
        limit_calls,
        simulation_calls,
        steering_calls,
        token_calls,
    )
    made = [name for module in modules for name in _own(module)]

    assert len(CALLS) == len(made)


def _own(module: ModuleType) -> Iterator[str]:
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__ and not name.startswith("_"):
            yield name
