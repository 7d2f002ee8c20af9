"""The SDK and the gateway know nothing of one another; here they are held together."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import msgspec
import pytest
from pydantic import BaseModel

from rota.operations.backends import Backends
from rota.sdk import (
    answers,
    calendar_answers,
    calendar_calls,
    calls,
    cart_answers,
    cart_calls,
    cart_template_answers,
    cart_template_calls,
    cluster_answers,
    forecast_answers,
    forecast_calls,
    limit_answers,
    limit_calls,
    plan_answers,
    simulation_answers,
    simulation_calls,
    steering_calls,
    token_answers,
    token_calls,
    why_answers,
)
from rota.sdk.exchange import Call
from rota.server.gateway.app import create_app
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.settings import GatewaySettings
from rota.server.gateway.shapes import (
    backfill,
    calendar,
    cart,
    cart_template,
    cluster,
    event,
    forecast,
    job,
    limit,
    log,
    plan,
    preview,
    problem,
    run,
    share,
    simulation,
    token,
    why,
    worker,
)

SHAPES: list[tuple[type[answers.Answer], type[BaseModel]]] = [
    (answers.Problem, problem.Fault),
    (answers.ProblemReport, problem.ProblemReport),
    (answers.Schedule, job.ScheduleShape),
    (answers.Job, job.JobShape),
    (answers.JobDetail, job.JobDetail),
    (answers.MovedJob, job.MovedJobShape),
    (answers.Answered, job.AnsweredShape),
    (answers.ClockChange, preview.ClockChangeShape),
    (answers.Lateness, job.LatenessShape),
    (answers.Upcoming, job.UpcomingShape),
    (answers.LedgerEntry, job.LedgerShape),
    (answers.CalendarEffect, job.CalendarEffectShape),
    (plan_answers.Change, plan.ChangeShape),
    (plan_answers.PlannedCalendar, plan.PlannedCalendarShape),
    (plan_answers.PlannedDeclaration, plan.PlannedDeclarationShape),
    (plan_answers.PlannedCart, plan.PlannedCartShape),
    (plan_answers.Plan, plan.PlanShape),
    (plan_answers.Validation, plan.ValidationShape),
    (plan_answers.Submission, plan.SubmissionShape),
    (plan_answers.SubmittedJob, plan.SubmittedJobShape),
    (answers.Reason, run.ReasonShape),
    (answers.Step, run.StepShape),
    (answers.OutputSummary, run.OutputSummaryShape),
    (answers.Attempt, run.AttemptShape),
    (answers.LateResult, run.LateResultShape),
    (answers.Run, run.RunShape),
    (answers.RunDetail, run.RunDetail),
    (answers.Batch, run.BatchShape),
    (why_answers.Holder, why.HolderShape),
    (why_answers.Obstacle, why.ObstacleShape),
    (why_answers.Reserved, why.ReservedShape),
    (why_answers.OrderOfService, why.OrderShape),
    (why_answers.NotReason, why.NotReasonShape),
    (why_answers.Why, why.WhyShape),
    (answers.Backfill, backfill.BackfillShape),
    (answers.SkippedDueTimes, backfill.SkippedShape),
    (cart_answers.CartFailures, cart.FailuresShape),
    (cart_answers.CartBetween, cart.BetweenShape),
    (cart_answers.Cart, cart.CartShape),
    (cart_answers.CartDetail, cart.CartDetail),
    (cart_answers.CommandedCart, cart.CommandedCartShape),
    (cart_answers.CartProgress, cart.ProgressShape),
    (cart_answers.FailureGroup, cart.FailureGroupShape),
    (cart_answers.CartGate, cart.GateShape),
    (cart_answers.CartItem, cart.ItemShape),
    (cart_answers.CartWave, cart.WaveShape),
    (cart_answers.Cells, cart.CellsShape),
    (cart_answers.CartPlan, cart.CartPlanShape),
    (cart_template_answers.CartTemplate, cart_template.CartTemplateShape),
    (cart_template_answers.CartTemplateDetail, cart_template.CartTemplateDetail),
    (forecast_answers.Expected, forecast.ExpectedShape),
    (forecast_answers.JobForecast, forecast.JobForecastShape),
    (forecast_answers.ForecastStart, forecast.StartShape),
    (forecast_answers.LoadBucket, forecast.LoadBucketShape),
    (forecast_answers.LoadPeak, forecast.LoadPeakShape),
    (forecast_answers.Quiet, forecast.QuietShape),
    (forecast_answers.Load, forecast.LoadShape),
    (forecast_answers.Saturation, forecast.SaturationShape),
    (forecast_answers.ForecastAccuracy, forecast.AccuracyShape),
    (forecast_answers.Forecast, forecast.ForecastShape),
    (simulation_answers.Waits, simulation.WaitsShape),
    (simulation_answers.SimulatedJob, simulation.SimulatedJobShape),
    (simulation_answers.SimulatedPriority, simulation.SimulatedPriorityShape),
    (simulation_answers.SimulatedShare, simulation.SimulatedShareShape),
    (simulation_answers.SimulatedUse, simulation.SimulatedUseShape),
    (simulation_answers.SimulatedSaturation, simulation.SimulatedSaturationShape),
    (simulation_answers.SimulationReport, simulation.ReportShape),
    (simulation_answers.Comparison, simulation.ComparisonShape),
    (limit_answers.Bucket, limit.BucketShape),
    (limit_answers.Use, limit.UseShape),
    (limit_answers.Limit, limit.LimitShape),
    (limit_answers.Resource, limit.ResourceShape),
    (limit_answers.Quota, limit.QuotaShape),
    (limit_answers.DeclarationChange, limit.DeclarationChangeShape),
    (limit_answers.Share, share.ShareShape),
    (answers.LogLine, log.LogLine),
    (answers.LogWindow, log.LogWindow),
    (answers.LogMatches, log.LogMatches),
    (answers.Event, event.EventShape),
    (cluster_answers.Worker, worker.WorkerShape),
    (cluster_answers.Server, cluster.ServerShape),
    (cluster_answers.Shard, cluster.ShardShape),
    (cluster_answers.PoolQueue, cluster.PoolQueueShape),
    (cluster_answers.Cluster, cluster.ClusterShape),
    (answers.SchedulePreview, preview.PreviewShape),
    (calendar_answers.Holidays, calendar.HolidaysShape),
    (calendar_answers.Calendar, calendar.CalendarShape),
    (calendar_answers.CalendarDetail, calendar.CalendarDetail),
    (calendar_answers.CalendarWindow, calendar.CalendarWindowShape),
    (calendar_answers.CalendarWindows, calendar.CalendarWindowsShape),
    (calendar_answers.CalendarChange, calendar.CalendarChangeShape),
    (token_answers.Token, token.TokenShape),
    (token_answers.NewToken, token.NewTokenShape),
    (token_answers.WorkerToken, token.WorkerTokenShape),
    (token_answers.NewWorkerToken, token.NewWorkerTokenShape),
    (token_answers.Caller, token.CallerShape),
]
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


@pytest.mark.parametrize(("answer", "shape"), SHAPES, ids=lambda kind: kind.__name__)
def test_every_field_that_is_read_is_one_the_server_sends(
    answer: type[answers.Answer], shape: type[BaseModel]
) -> None:
    read = {field.name for field in msgspec.structs.fields(answer)}

    assert read <= set(shape.model_fields)


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
