"""Watching from one stream: what is handed out, and what a broken connection costs."""

from __future__ import annotations

import json

import pytest

from rota.api.carts import WatchedCart
from rota.api.output import LinesNews
from rota.api.runs import Attempt, ProgressNews, Run, RunDetail, StepNews, TimeNews
from rota.sdk import errors
from tests.unit.sdk.answering import Answering, Ask, Given, document, events, problem

STREAM = "GET /runs/r_1/stream"
RUN = {"id": "r_1", "job": "tidy", "state": "PROCESSING", "attempt": 1}
ENDED = {**RUN, "state": "COMPLETED"}
AWAY = problem(503, detail="restarting")
BUILDS = {"attempt": 1, "number": 0, "step": {"name": "build", "result": "running"}}
BUILT = {"attempt": 1, "number": 0, "step": {"name": "build", "result": "completed"}}
LINES = {"run": "r_1", "attempt": 1, "lines": [{"n": 0, "text": "x"}], "next_line": 1}
NOON = {"at": "2026-06-01T12:00:00Z"}
CART = {"id": "c_1", "name": "up", "state": "RUNNING"}


def numbered(*named: tuple[str, str, object]) -> Given:
    """A stream that breaks off after events with these ids."""
    text = "".join(f"id: {i}\nevent: {name}\ndata: {json.dumps(d)}\n\n" for i, name, d in named)
    return Given(text.encode(), 200, "text/event-stream", len(text) + 100)


def test_all_that_happens_is_handed_out_as_what_it_is(server: Answering, ask: Ask) -> None:
    server.on(
        STREAM,
        events(
            ("run", RUN),
            ("step", BUILDS),
            ("lines", LINES),
            ("progress", {"attempt": 1, "progress": {"done": 1.0, "total": 2.0}}),
            ("time", NOON),
            ("step", BUILT),
            ("weather", {"of": "a newer server"}),
            ("attempt", {"number": 1, "result": "COMPLETED"}),
            ("end", ENDED),
        ),
    )

    found = ask(server, "follow_run", "r_1")

    assert [type(each) for each in found] == [
        Run,
        StepNews,
        LinesNews,
        ProgressNews,
        TimeNews,
        StepNews,
        Attempt,
        RunDetail,
    ]


def test_a_run_is_watched_with_one_request_however_much_happens(
    server: Answering, ask: Ask
) -> None:
    server.on(STREAM, events(("run", RUN), *[("time", NOON)] * 100, ("end", ENDED)))

    ask(server, "follow_run", "r_1", lines=20)

    [asked] = server.asked
    assert asked.query["lines"] == ["20"]


def test_a_stream_that_broke_off_goes_on_behind_what_was_told(server: Answering, ask: Ask) -> None:
    server.on(
        STREAM,
        numbered(("1.0.0", "run", RUN), ("1.0.0", "step", BUILDS), ("1.4.0", "lines", LINES)),
        AWAY,
        events(("run", RUN), ("step", BUILDS), ("step", BUILT), ("end", ENDED)),
    )
    server.on("GET /runs/r_1", AWAY)

    found = ask(server, "follow_run", "r_1")

    assert [type(each) for each in found] == [Run, StepNews, LinesNews, StepNews, RunDetail]
    streams = [asked for asked in server.asked if asked.path.endswith("/stream")]
    places = [asked.headers.get("Last-Event-ID") for asked in streams]
    assert places == [None, "1.4.0", "1.4.0"]


@pytest.mark.parametrize("nothing", [problem(404), events(), events(broken=True)])
def test_the_end_is_told_where_no_stream_gets_through(
    server: Answering, ask: Ask, nothing: Given
) -> None:
    server.on(STREAM, nothing)
    server.on("GET /runs/r_1", document(RUN), document(ENDED))

    found = ask(server, "follow_run", "r_1")

    assert [each.state for each in found][-1] == "COMPLETED"


def test_a_run_that_does_not_exist_is_not_waited_for(server: Answering, ask: Ask) -> None:
    with pytest.raises(errors.NotFound):
        ask(server, "follow_run", "r_1")


def test_time_that_is_up_leaves_the_run_going(server: Answering, ask: Ask) -> None:
    server.on(STREAM, events(("run", RUN), ("time", NOON), ("time", NOON)))

    with pytest.raises(TimeoutError, match="r_1 is still PROCESSING"):
        ask(server, "follow_run", "r_1", timeout_seconds=0)


def test_a_cart_is_handed_out_whenever_it_stands_in_another_way(
    server: Answering, ask: Ask
) -> None:
    running = {"key": "a", "run": "r_1", "note": {"step": "build"}}
    server.on(
        "GET /carts/c_1/stream",
        events(
            ("cart", {**CART, "running": [running]}),
            ("time", NOON),
            ("end", {**CART, "state": "PAUSED"}),
        ),
    )

    first, _, last = ask(server, "follow_cart", "c_1")

    assert isinstance(first, WatchedCart)
    assert first.running[0].note is not None
    assert first.running[0].note.step == "build"
    assert last.state == "PAUSED"


def test_a_cart_is_asked_for_where_no_stream_gets_through(server: Answering, ask: Ask) -> None:
    server.on("GET /carts/c_1", document(CART), document({**CART, "state": "PAUSED"}))

    found = ask(server, "follow_cart", "c_1")

    assert [each.state for each in found] == ["RUNNING", "PAUSED"]
