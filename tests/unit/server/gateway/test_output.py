from __future__ import annotations

import pytest

from rota.ports.queue import EVENTS
from tests.unit.server.gateway.served import Served, job
from tests.unit.server.gateway.streaming import streaming

pytestmark = pytest.mark.anyio


async def test_the_log_of_a_run_that_has_not_begun_is_empty(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    log = (await served.get(f"runs/{run['id']}/log")).json()

    assert (log["attempt"], log["lines"], log["complete"]) == (0, [], False)


async def test_lines_come_with_their_place_stream_and_time(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\ntwo\n")

    log = (await served.get(f"runs/{run_id}/log")).json()

    assert log["lines"][1] == {
        "n": 1,
        "at": "1970-01-01T00:00:01Z",
        "stream": "stdout",
        "step": 1,
        "text": "two",
        "continues": False,
    }
    assert (log["total_lines"], log["next_line"], log["complete"]) == (2, 2, True)
    assert log["output_state"] == "inline"


async def test_a_window_of_the_log(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"".join(b"%d\n" % n for n in range(10)))

    window = await served.get(f"runs/{run_id}/log", params={"first_line": "3", "limit": "2"})
    tail = await served.get(f"runs/{run_id}/log", params={"tail": "2"})

    assert [line["text"] for line in window.json()["lines"]] == ["3", "4"]
    assert [line["text"] for line in tail.json()["lines"]] == ["8", "9"]


async def test_bytes_that_are_no_text_are_replaced_in_lines_and_kept_in_raw(
    served: Served,
) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"\xff<script>\x1b[31m\n")

    log = await served.get(f"runs/{run_id}/log")
    raw = await served.get(f"runs/{run_id}/log/raw")

    assert log.json()["lines"][0]["text"] == "\ufffd<script>\x1b[31m"
    assert raw.content == b"\xff<script>\x1b[31m\n"


async def test_the_raw_log_is_a_download_that_no_browser_renders(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"<script>\n")

    raw = await served.get(f"runs/{run_id}/log/raw")

    assert raw.headers["content-type"] == "text/plain; charset=utf-8"
    assert raw.headers["content-disposition"] == f'attachment; filename="{run_id}-1.log"'
    assert raw.headers["x-content-type-options"] == "nosniff"


async def test_the_raw_log_of_a_run_that_has_not_begun_is_empty(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    raw = await served.get(f"runs/{run['id']}/log/raw")

    assert (raw.status_code, raw.content) == (200, b"")


@pytest.mark.parametrize("what", ["log", "log/blocks", "log/raw", "log:search"])
async def test_an_attempt_that_was_never_made_is_not_found(served: Served, what: str) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\n")
    params = {"attempt": "2"} | ({"q": "x"} if what == "log:search" else {})

    answer = await served.get(f"runs/{run_id}/{what}", params=params)

    assert answer.status_code == 404


async def test_the_log_is_searched_on_the_server(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"ok\nerror: 1\nok\nerror: 2\n")
    path = f"runs/{run_id}/log:search"

    first = (await served.get(path, params={"q": "error", "limit": "1"})).json()
    rest = (await served.get(path, params={"q": "error", "after_line": first["next_line"]})).json()

    assert [line["n"] for line in first["matches"]] == [1]
    assert [line["n"] for line in rest["matches"]] == [3]
    assert rest["next_line"] is None


async def test_nothing_to_search_for_is_refused(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through()

    answer = await served.get(f"runs/{run_id}/log:search", params={"q": ""})

    assert answer.status_code == 400


async def test_what_is_still_on_the_worker_is_told(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()
    worker = await served.worker()
    [work] = await worker.claim()
    await worker.prints(work, b"arrived\n")

    await worker.finish(work, printed=b"arrived\n" + b"not yet\n" * 1_000)

    log = (await served.get(f"runs/{run['id']}/log")).json()
    detail = (await served.get(f"runs/{run['id']}")).json()
    assert (log["total_lines"], log["complete"], log["output_state"]) == (1, False, "pending")
    assert (log["pending_bytes"], log["worker"]) == (8_000, detail["worker"])
    assert detail["state"] == "COMPLETED"
    assert detail["attempts"][0]["output"]["state"] == "pending"


async def test_the_log_of_a_finished_run_is_streamed_to_its_end(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\ntwo\n")

    async with streaming(served, f"runs/{run_id}/log/stream") as stream:
        lines, end = await stream.event(), await stream.event()

    assert (lines["event"], lines["id"]) == ("lines", "1.2")
    assert [line["text"] for line in lines["data"]["lines"]] == ["one", "two"]
    assert end["event"] == "end"
    assert end["data"]["state"] == "COMPLETED"


async def test_lines_come_while_the_run_goes_on(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()
    worker = await served.worker()
    [work] = await worker.claim()

    async with streaming(served, f"runs/{run['id']}/log/stream") as stream:
        await stream.started()
        await worker.prints(work, b"hello\n")
        lines = await stream.event()
        assert [line["text"] for line in lines["data"]["lines"]] == ["hello"]
        assert lines["data"]["complete"] is False


async def test_a_later_attempt_is_announced_and_followed(served: Served) -> None:
    await served.apply(job(retry={"attempts": 2}))
    run = await served.trigger()
    worker = await served.worker()
    [work] = await worker.claim()
    await worker.finish(work, "FAILED", b"first\n")

    async with streaming(served, f"runs/{run['id']}/log/stream") as stream:
        first = await stream.event()
        await served.engine.store.release_eligible(10)
        [work] = await worker.claim()
        await worker.finish(work, "COMPLETED", b"second\n")
        served.engine.queue.announce(EVENTS)
        began, second, end = [await stream.event() for _ in range(3)]

    assert first["data"]["lines"][0]["text"] == "first"
    assert (began["event"], began["data"]) == ("attempt", {"attempt": 2})
    assert second["data"]["lines"][0]["text"] == "second"
    assert end["data"]["state"] == "COMPLETED"


async def test_a_log_stream_resumes_after_the_last_line_seen(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\ntwo\nthree\n")
    seen = {"Last-Event-ID": "1.2"}

    async with streaming(served, f"runs/{run_id}/log/stream", seen) as stream:
        lines = await stream.event()

    assert [line["text"] for line in lines["data"]["lines"]] == ["three"]


async def test_a_log_stream_begins_at_a_line(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\ntwo\n")

    async with streaming(served, f"runs/{run_id}/log/stream", attempt=1, from_line=1) as stream:
        lines = await stream.event()

    assert [line["text"] for line in lines["data"]["lines"]] == ["two"]


async def test_blocks_are_lines_that_were_printed_together(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"one\ntwo\nunfinished \xff")

    page = (await served.get(f"runs/{run_id}/log/blocks")).json()

    whole, part = page.pop("blocks")
    assert whole == {
        "n": 0,
        "at": "1970-01-01T00:00:01Z",
        "stream": "stdout",
        "step": 1,
        "text": "one\ntwo",
        "continues": False,
    }
    assert (part["n"], part["text"], part["continues"]) == (2, "unfinished \ufffd", True)
    window = (await served.get(f"runs/{run_id}/log")).json()
    assert page == {name: window[name] for name in window if name != "lines"}


async def test_blocks_begin_at_a_line_or_before_the_end(served: Served) -> None:
    await served.apply(job())
    run_id = await served.run_through(printed=b"".join(b"%d\n" % n for n in range(10)))
    path = f"runs/{run_id}/log/blocks"

    [rest] = (await served.get(path, params={"first_line": "7"})).json()["blocks"]
    [tail] = (await served.get(path, params={"last": "2"})).json()["blocks"]

    assert (rest["n"], rest["text"]) == (7, "7\n8\n9")
    assert (tail["n"], tail["text"]) == (8, "8\n9")


async def test_a_run_that_has_not_begun_has_no_blocks(served: Served) -> None:
    await served.apply(job())
    run = await served.trigger()

    page = (await served.get(f"runs/{run['id']}/log/blocks")).json()

    assert (page["attempt"], page["blocks"], page["complete"]) == (0, [], False)
