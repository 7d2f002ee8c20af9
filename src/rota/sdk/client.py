"""The typed client. Its methods are the functions of `calls` and its neighbours, sent and read.

    with Client() as client:
        run = client.trigger("nightly-backup", {"target": "orders"})
        for window in client.follow_log(run.id): ...
        print(client.wait(run.id).state)

Every list method gives one page; `each` walks all of them: `client.each(calls.list_runs())`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

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
from rota.sdk.answers import Event, LogWindow, Page, Run, RunDetail
from rota.sdk.cart_answers import CartDetail
from rota.sdk.exchange import Call, Reply, read, read_as, request_for
from rota.sdk.following import AWAY, STREAM_SILENCE_SECONDS, Following, Outage, Pauses
from rota.sdk.server import find_server
from rota.sdk.sse import EventReader, ServerEvent
from rota.sdk.transport import Transport

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_SECONDS = 30.0


def _method(call: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(call)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(call(*args, **kwargs))

    return method


class Client:
    """Speaks to a Rota server; finds it and the token by itself where it can.

    That is: the arguments, else ROTA_URL and ROTA_TOKEN, else rota.toml, else what `rota up` noted
    in ROTA_HOME. `Denied` if the token must not go to that server. Threads may share one.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        project: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self.server = find_server(url, token)
        self.project = project
        self._transport = Transport(self.server, timeout_seconds)

    apply = _method(calls.apply)
    approve_cart = _method(cart_calls.approve_cart)
    backfill_job = _method(calls.backfill_job)
    cancel_cart = _method(cart_calls.cancel_cart)
    cancel_run = _method(calls.cancel_run)
    create_token = _method(token_calls.create_token)
    create_worker_token = _method(token_calls.create_worker_token)
    delete_calendar = _method(calendar_calls.delete_calendar)
    delete_cart_template = _method(cart_template_calls.delete_cart_template)
    delete_job = _method(calls.delete_job)
    delete_limit = _method(limit_calls.delete_limit)
    delete_quota = _method(limit_calls.delete_quota)
    delete_resource = _method(limit_calls.delete_resource)
    disable_job = _method(calls.disable_job)
    drain_worker = _method(calls.drain_worker)
    edit_cart = _method(cart_calls.edit_cart)
    enable_job = _method(calls.enable_job)
    explain = _method(calls.explain)
    forecast = _method(forecast_calls.forecast)
    get_calendar = _method(calendar_calls.get_calendar)
    get_calendar_windows = _method(calendar_calls.get_calendar_windows)
    get_cart = _method(cart_calls.get_cart)
    get_cart_cells = _method(cart_calls.get_cart_cells)
    get_cart_events = _method(cart_calls.get_cart_events)
    get_cart_template = _method(cart_template_calls.get_cart_template)
    get_cluster = _method(calls.get_cluster)
    get_history = _method(calls.get_history)
    get_job = _method(calls.get_job)
    get_ledger = _method(calls.get_ledger)
    get_limit = _method(limit_calls.get_limit)
    get_log = _method(calls.get_log)
    get_quota = _method(limit_calls.get_quota)
    get_resource = _method(limit_calls.get_resource)
    get_run = _method(calls.get_run)
    get_run_events = _method(calls.get_run_events)
    get_schema = _method(calls.get_schema)
    get_upcoming = _method(calls.get_upcoming)
    hold_run = _method(steering_calls.hold_run)
    list_calendars = _method(calendar_calls.list_calendars)
    list_cart_failure_groups = _method(cart_calls.list_cart_failure_groups)
    list_cart_items = _method(cart_calls.list_cart_items)
    list_cart_templates = _method(cart_template_calls.list_cart_templates)
    list_cart_waves = _method(cart_calls.list_cart_waves)
    list_carts = _method(cart_calls.list_carts)
    list_events = _method(calls.list_events)
    list_jobs = _method(calls.list_jobs)
    list_limits = _method(limit_calls.list_limits)
    list_resources = _method(limit_calls.list_resources)
    list_runs = _method(calls.list_runs)
    list_servers = _method(calls.list_servers)
    list_shards = _method(calls.list_shards)
    list_shares = _method(limit_calls.list_shares)
    list_tokens = _method(token_calls.list_tokens)
    list_worker_tokens = _method(token_calls.list_worker_tokens)
    list_workers = _method(calls.list_workers)
    pause_cart = _method(cart_calls.pause_cart)
    pause_job = _method(calls.pause_job)
    plan_cart = _method(cart_calls.plan_cart)
    plan_rollback = _method(cart_template_calls.plan_rollback)
    plan_template = _method(cart_calls.plan_template)
    preview_schedule = _method(calls.preview_schedule)
    put_calendar = _method(calendar_calls.put_calendar)
    put_limit = _method(limit_calls.put_limit)
    put_quota = _method(limit_calls.put_quota)
    put_resource = _method(limit_calls.put_resource)
    put_share = _method(limit_calls.put_share)
    raw_log = _method(calls.raw_log)
    release_run = _method(steering_calls.release_run)
    reprioritise_run = _method(steering_calls.reprioritise_run)
    resolve_run = _method(calls.resolve_run)
    resume_cart = _method(cart_calls.resume_cart)
    resume_job = _method(calls.resume_job)
    resume_worker = _method(calls.resume_worker)
    retry_cart = _method(cart_calls.retry_cart)
    retry_run = _method(calls.retry_run)
    revoke_token = _method(token_calls.revoke_token)
    revoke_worker_token = _method(token_calls.revoke_worker_token)
    rollback_cart = _method(cart_template_calls.rollback_cart)
    search_log = _method(calls.search_log)
    simulate = _method(simulation_calls.simulate)
    skip_next = _method(calls.skip_next)
    submit_cart = _method(cart_calls.submit_cart)
    submit_job = _method(calls.submit_job)
    submit_template = _method(cart_calls.submit_template)
    trigger = _method(calls.trigger)
    trigger_many = _method(calls.trigger_many)
    validate = _method(calls.validate)
    whoami = _method(token_calls.whoami)

    def send(self, call: Call[T]) -> T:
        return read(call, self.exchange(call))

    def exchange(self, call: Call[T]) -> Reply:
        """The answer as it came, an error too; `read(call, reply)` makes the type of it."""
        return self._transport.exchange(request_for(call, self.server, self.project))

    def stream(
        self, call: Call[bytes], *, silence_seconds: float = TIMEOUT_SECONDS
    ) -> Iterator[bytes]:
        """The body of an answer as it comes."""
        request = request_for(call, self.server, self.project)
        return self._transport.stream(request, silence_seconds)

    def each(self, call: Call[Page[T]]) -> Iterator[T]:
        """All entries of a list, page by page."""
        while True:
            page = self.send(call)
            yield from page.items
            if page.next_cursor is None:
                return
            call = call.with_query(cursor=page.next_cursor)

    def wait(self, run: str, timeout_seconds: float | None = None) -> RunDetail:
        """The run once nothing more happens by itself: final, or UNKNOWN.

        A `TimeoutError` leaves the run going.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pauses = Pauses()
        while not (found := self.get_run(run)).is_settled:
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"run {run} is still {found.state}")
            _pause(pauses.next_seconds())
        return found

    def wait_for_cart(self, cart: str, timeout_seconds: float | None = None) -> CartDetail:
        """The cart once nothing more happens by itself: final, or PAUSED.

        Bears with a server that is away for a while. A `TimeoutError` leaves the cart going.
        """
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pauses, outage = Pauses(), Outage()
        while True:
            try:
                found = self.get_cart(cart)
                outage.end()
                if found.is_settled:
                    return found
            except AWAY as error:
                outage.bear(error)
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"cart {cart} is still going")
            _pause(pauses.next_seconds())

    def follow_log(
        self, run: str, *, attempt: int | None = None, from_line: int = 0
    ) -> Iterator[LogWindow | Run]:
        """Output as it comes, from the latest or a named attempt on; the ended run comes last.

        Ends when the run does, even if the live stream is lost.
        """
        following = Following(run, attempt, from_line)
        while following.end is None:
            with suppress(*AWAY):
                for event in self._events_of(following.stream_call()):
                    yield from following.take_event(event)
            if following.end is None:
                yield from self._catch_up(following)
            if following.end is None:
                _pause(following.pauses.next_seconds())
        yield following.end

    def follow_events(self, *, after: int | str | None = None) -> Iterator[Event]:
        """Events as they come, for ever; resumes by itself where it broke off."""
        pauses = Pauses()
        while True:
            with suppress(*AWAY):
                for each in self._events_of(calls.event_stream(after=after)):
                    event = read_as(Event, each.data)
                    after = event.id
                    pauses.restart()
                    yield event
            _pause(pauses.next_seconds())

    def now(self) -> datetime:
        """By this machine's clock; what is due is decided by the server's."""
        return datetime.now(UTC)  # noqa: TID251 (a client has no clock but its own)

    def address_of(self, run: str) -> str:
        """Of the run's page."""
        return f"{self.server.url}/runs/{run}"

    def address_of_cart(self, cart: str) -> str:
        """Of the cart's page."""
        return f"{self.server.url}/carts/{cart}"

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _catch_up(self, following: Following) -> Iterator[LogWindow]:
        try:
            run = self.send(following.run_call())
            while run.attempt:
                new = following.take_window(self.send(following.window_call()))
                if new is None:
                    break
                yield new
            following.take_run(run)
        except AWAY as error:
            following.take_outage(error)

    def _events_of(self, call: Call[bytes]) -> Iterator[ServerEvent]:
        reader = EventReader()
        for data in self.stream(call, silence_seconds=STREAM_SILENCE_SECONDS):
            yield from reader.feed(data)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
