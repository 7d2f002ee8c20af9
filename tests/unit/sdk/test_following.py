from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Generator, Iterator
from itertools import islice
from typing import Any

import pytest

from rota.api.output import LogBlock, LogLine, LogPage, LogWindow
from rota.api.runs import Run, RunDetail
from rota.sdk import errors, following
from rota.sdk.client import AsyncClient, Client
from rota.sdk.verbs import Course, Flow, Hand, Pause
from tests.unit.sdk.answering import Answering, Ask, document, events, problem

RUN = {"id": "r_1", "job": "tidy", "state": "PROCESSING", "attempt": 1}
ENDED = {**RUN, "state": "COMPLETED"}
AWAY = problem(503, detail="restarting")


@pytest.fixture
def client(server: Answering) -> Iterator[Client]:
    with Client(server.url, "secret") as client:
        yield client


def run(state: str, attempt: int = 1) -> RunDetail:
    return RunDetail(id="r_1", job="tidy", state=state, attempt=attempt)


def window(*lines: str, first: int = 0, attempt: int = 1) -> dict[str, object]:
    numbered = [{"n": first + number, "text": text} for number, text in enumerate(lines)]
    end = first + len(lines)
    return {"run": "r_1", "attempt": attempt, "lines": numbered, "next_line": end}


def page(*blocks: str, first: int = 0, total: int, attempt: int = 1) -> dict[str, object]:
    """A page of the log that ends after these blocks, of one or more lines each."""
    described, next_line = [], first
    for text in blocks:
        described.append({"n": next_line, "text": text})
        next_line += text.count("\n") + 1
    place = {"run": "r_1", "attempt": attempt, "next_line": next_line, "total_lines": total}
    return {**place, "blocks": described}


def texts(parts: list[LogWindow | Run]) -> list[str]:
    return [line.text for part in parts if isinstance(part, LogWindow) for line in part.lines]


def pauses_of(flow: Flow[Any, Any], answers: list[object]) -> list[float]:
    """How long a flow pauses when it gets these answers to its calls; no client is needed."""
    course, paused = Course(flow), []
    while course.wants is not None:
        match course.wants:
            case Pause(seconds):
                paused.append(seconds)
                course.tell(None)
            case Hand():
                course.tell(None)
            case _ if isinstance(answers[0], errors.RotaApiError):
                course.fail(answers.pop(0))  # type: ignore[arg-type]  # as was just asked
            case _:
                course.tell(answers.pop(0))
    return paused


def test_pauses_grow_until_the_run_has_moved() -> None:
    states = ["QUEUED", "QUEUED", "QUEUED", "CLAIMED", "PROCESSING", "PROCESSING", "COMPLETED"]

    paused = pauses_of(following.wait("r_1"), [run(state) for state in states])

    assert paused == pytest.approx([0.05, 0.075, 0.1125, 0.05, 0.05, 0.075])


def test_pauses_grow_also_while_a_server_is_away() -> None:
    away = errors.Unreachable("restarting")

    paused = pauses_of(following.wait("r_1"), [run("QUEUED"), away, away, run("COMPLETED")])

    assert paused == pytest.approx([0.05, 0.075, 0.1125])


def test_pause_is_cut_where_the_time_is_up() -> None:
    looks: list[object] = [*[run("QUEUED")] * 15, run("MISSED")]

    paused = pauses_of(following.wait("r_1", timeout_seconds=1.5), looks)

    assert max(paused) <= 1.5


def test_waiting_survives_a_restart_of_the_server(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1", document(RUN), AWAY, AWAY, document(ENDED))

    assert ask(server, "wait", "r_1").state == "COMPLETED"


def test_waiting_for_a_server_that_stays_away_ends(
    server: Answering, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.sdk.following.PATIENCE_SECONDS", 0.0)
    server.on("GET /runs/r_1", AWAY)

    with pytest.raises(errors.Unavailable, match="restarting"):
        ask(server, "wait", "r_1")


def test_waiting_for_no_answer_at_all_has_its_limit(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1", AWAY)

    with pytest.raises(TimeoutError, match="r_1 is still going"):
        ask(server, "wait", "r_1", timeout_seconds=0)


LINES = f"event: lines\ndata: {json.dumps(window('a'))}\n\n".encode()


def test_stream_is_closed_when_nobody_reads_on() -> None:
    closed = []

    class Streaming(Client):
        def stream(self, *_: Any, **__: Any) -> Generator[bytes, None, None]:
            try:
                yield LINES
            finally:
                closed.append("stream")

    log = Streaming("http://127.0.0.1:1").follow_log("r_1")
    next(log)
    assert closed == []
    log.close()

    assert closed == ["stream"]


def test_stream_is_closed_when_nobody_on_the_loop_reads_on() -> None:
    closed = []

    class Streaming(AsyncClient):
        async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
            try:
                yield LINES
            finally:
                closed.append("stream")

    async def read_one() -> None:
        log = Streaming("http://127.0.0.1:1").follow_log("r_1")
        await anext(log)
        await log.aclose()
        assert closed == ["stream"]

    asyncio.run(read_one())


def test_waiting_ends_when_the_run_has(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1", document(RUN), document(ENDED))

    assert ask(server, "wait", "r_1").state == "COMPLETED"


def test_waiting_ends_where_a_person_must_decide(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1", document({**RUN, "state": "UNKNOWN"}))

    assert ask(server, "wait", "r_1").state == "UNKNOWN"


def test_waiting_has_its_limit_and_leaves_the_run_going(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1", document(RUN))

    with pytest.raises(TimeoutError, match="still PROCESSING"):
        ask(server, "wait", "r_1", timeout_seconds=0)


def test_log_is_followed_over_attempts_to_the_end(server: Answering, ask: Ask) -> None:
    server.on(
        "GET /runs/r_1/log/stream",
        events(
            ("lines", window("a", "b")),
            ("attempt", {"attempt": 2}),
            ("news", {"of": "a newer server"}),
            ("lines", window("c", attempt=2)),
            ("end", ENDED),
        ),
    )

    parts = ask(server, "follow_log", "r_1")

    assert texts(parts) == ["a", "b", "c"]
    assert isinstance(parts[-1], Run)
    assert parts[-1].state == "COMPLETED"


def test_stored_output_is_read_by_pages(server: Answering, ask: Ask) -> None:
    server.on(
        "GET /runs/r_1/log/blocks",
        document(page("a\nb", "c", total=5)),
        document(page("d\ne", first=3, total=5)),
    )

    pages = ask(server, "read_log", "r_1", last=5)

    assert [block.text for each in pages for block in each.blocks] == ["a\nb", "c", "d\ne"]
    assert [asked.query for asked in server.asked] == [
        {"last": ["5"]},
        {"attempt": ["1"], "first_line": ["3"]},
    ]


def test_page_without_blocks_ends_the_reading(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1/log/blocks", document(page(total=5)))

    assert len(ask(server, "read_log", "r_1")) == 1


def test_stored_output_is_followed_by_pages_and_the_stream_has_only_the_rest(
    server: Answering, ask: Ask
) -> None:
    server.on(
        "GET /runs/r_1/log/blocks",
        document(page("a\nb", total=4)),
        document(page("c\nd", first=2, total=4)),
    )
    server.on("GET /runs/r_1/log/stream", events(("lines", window("e", first=4)), ("end", ENDED)))

    parts = ask(server, "follow_log", "r_1", from_line=0)

    numbers = [line.n for part in parts if isinstance(part, LogWindow) for line in part.lines]
    assert texts(parts) == ["a", "b", "c", "d", "e"]
    assert numbers == [0, 1, 2, 3, 4]
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == [
        "blocks",
        "blocks",
        "stream",
    ]
    assert server.asked[-1].query == {"attempt": ["1"], "from_line": ["4"]}


def test_output_is_followed_also_if_its_pages_break_off(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1/log/blocks", document(page("a\nb", total=4)), AWAY)
    server.on(
        "GET /runs/r_1/log/stream", events(("lines", window("c", "d", first=2)), ("end", ENDED))
    )

    assert texts(ask(server, "follow_log", "r_1")) == ["a", "b", "c", "d"]


def test_page_of_many_lines_is_handed_out_in_windows() -> None:
    many = LogPage(
        run="r_1",
        attempt=1,
        blocks=(LogBlock(n=5, text="\n" * 24_999), LogBlock(n=25_005, text="x", continues=True)),
        next_line=25_006,
        total_lines=25_006,
        complete=True,
        worker="w",
    )

    windows = list(many.windows())

    assert [len(each.lines) for each in windows] == [10_000, 10_000, 5_001]
    assert [each.next_line for each in windows] == [10_005, 20_005, 25_006]
    assert windows[-1].lines[-1] == LogLine(n=25_005, text="x", continues=True)
    assert (windows[0].run, windows[0].worker, windows[0].complete) == ("r_1", "w", True)


def test_broken_stream_is_resumed_where_it_broke_off(server: Answering, ask: Ask) -> None:
    server.on(
        "GET /runs/r_1/log/stream",
        events(("lines", window("a", "b")), broken=True),
        events(("lines", window("d", first=3)), ("end", ENDED)),
    )
    server.on("GET /runs/r_1", document(RUN))
    server.on("GET /runs/r_1/log", document(window("c", first=2)), document(window(first=3)))

    parts = ask(server, "follow_log", "r_1")

    resumed = [asked.query for asked in server.asked if asked.path.endswith("/stream")][1]
    assert texts(parts) == ["a", "b", "c", "d"]
    assert resumed == {"attempt": ["1"], "from_line": ["3"]}


def test_run_ends_also_for_who_cannot_have_the_stream(server: Answering, ask: Ask) -> None:
    second = {**ENDED, "attempt": 2}
    server.on("GET /runs/r_1/log/stream", problem(503))
    server.on("GET /runs/r_1", document(RUN), document({**RUN, "attempt": 2}), document(second))
    server.on(
        "GET /runs/r_1/log",
        document(window("a")),
        document(window(first=1)),
        document(window(first=1)),
        document(window("b", attempt=2)),
        document(window(first=1, attempt=2)),
    )

    parts = ask(server, "follow_log", "r_1")

    assert texts(parts) == ["a", "b"]
    assert parts[-1].state == "COMPLETED"


def test_server_that_stays_away_is_given_up_on(
    server: Answering, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.sdk.following.PATIENCE_SECONDS", 0.0)
    server.on("GET /runs/r_1/log/stream", problem(503))
    server.on("GET /runs/r_1", problem(503, detail="the store is away"))

    with pytest.raises(errors.Unavailable, match="the store is away"):
        ask(server, "follow_log", "r_1")


def test_run_that_does_not_exist_is_not_waited_for(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1/log/stream", problem(404, detail="no run r_1"))

    with pytest.raises(errors.NotFound, match="no run r_1"):
        ask(server, "follow_log", "r_1")


def test_events_go_on_after_a_broken_stream(server: Answering, client: Client) -> None:
    server.on(
        "GET /events/stream",
        events(("message", {"id": "7", "type": "rota.run.finished"}), broken=True),
        events(("message", {"id": "8"})),
    )

    first, second = islice(client.follow_events(after=6), 2)

    assert (first.id, second.id) == ("7", "8")
    assert [asked.query["after"] for asked in server.asked] == [["6"], ["7"]]
