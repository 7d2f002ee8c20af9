"""Live values for tab completion. They stay silent when no server answers in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from rota.sdk import calendar_calls, calls, cart_calls, limit_calls
from rota.sdk.answers import Page
from rota.sdk.client import Client
from rota.sdk.errors import RotaApiError
from rota.sdk.exchange import Call

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

T = TypeVar("T")

_PATIENCE_SECONDS = 1.0
_MOST = 200


def complete_jobs(context: CompletionContext) -> list[tuple[str, str]]:
    """Job names with their schedules in words."""
    jobs = _ask(calls.list_jobs(name=f"{context.incomplete}*", limit=_MOST))
    return [(job.name, job.schedule.words if job.schedule else "on demand") for job in jobs]


def complete_runs(context: CompletionContext) -> list[tuple[str, str]]:
    """The newest runs with job and state."""
    return [(run.id, f"{run.job} {run.state.lower()}") for run in _ask(calls.list_runs(limit=50))]


def complete_carts(_: CompletionContext) -> list[tuple[str, str]]:
    """The newest carts with name and state."""
    carts = _ask(cart_calls.list_carts(limit=50))
    return [(cart.id, f"{cart.name} {cart.state.lower()}") for cart in carts]


def complete_calendars(_: CompletionContext) -> list[tuple[str, str]]:
    """Calendar names with their windows in words."""
    return [(it.name, it.words) for it in _ask(calendar_calls.list_calendars(limit=_MOST))]


def complete_limits(_: CompletionContext) -> list[tuple[str, str]]:
    """Names of rate limits with what they allow."""
    return [(it.name, it.words) for it in _ask(limit_calls.list_limits(limit=_MOST))]


def complete_resources(_: CompletionContext) -> list[tuple[str, str]]:
    """Names of resources with what they allow."""
    return [(it.name, it.words) for it in _ask(limit_calls.list_resources(limit=_MOST))]


def _ask(call: Call[Page[T]]) -> Iterable[T]:
    try:
        with Client(timeout_seconds=_PATIENCE_SECONDS) as client:
            return client.send(call).items
    except RotaApiError:
        return ()
