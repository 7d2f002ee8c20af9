"""Functions are interrupted where they run, and end as they did, however close a cancel comes."""

from __future__ import annotations

import ctypes
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import pytest

from rota import App, Context
from rota.ports.work import MAX_STEPS, attempt_in
from rota.sdk.context import Cancelled
from rota.sdk.host import execution, threads, wire
from rota.sdk.host.execution import CallBatch, Execution, Outbox
from rota.sdk.host.threads import Executions, Seat, Stopwatch, _call

app = App("hosted")
_gates: dict[str, threading.Event] = {}
_calls: list[str] = []
_meeting = threading.Barrier(3)


class Model:
    """A result with a conversion of its own."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def model_dump(self, **_: object) -> object:
        raise self._error


class Unspeakable(Exception):
    def with_traceback(self, _trace: object) -> Unspeakable:
        raise LookupError("not a word")


@app.job()
def odd_result() -> Model:
    return Model(KeyError("boom"))


@app.job()
async def odd_result_async() -> Model:
    return Model(KeyError("boom"))


@app.job()
def exit_in_result() -> Model:
    return Model(SystemExit(3))


@app.job()
async def exit_in_result_async() -> Model:
    return Model(SystemExit(3))


@app.job()
def unspeakable_error() -> None:
    raise Unspeakable


@app.job()
async def unspeakable_error_async() -> None:
    raise Unspeakable


@app.job()
async def nothing_async() -> None: ...


@app.job()
def meet() -> None:
    _meeting.wait(10)


@app.job()
def nothing() -> None: ...


@app.job()
def wait(name: str) -> None:
    _gates[name].wait()


@app.job()
def note(name: str) -> None:
    _calls.append(name)


@app.job()
def count_steps(ctx: Context, count: int) -> None:
    for number in range(count):
        with ctx.step(f"step {number}"):
            pass


@app.job()
def fail_in_a_late_step(ctx: Context) -> None:
    for number in range(1_100):
        with ctx.step(f"step {number}"):
            if number == 1_050:
                raise ValueError("late")


@app.job()
def nest_steps(ctx: Context, name: str) -> None:
    with ctx.step("outer"):
        with ctx.step("inner"):
            pass
        _gates[name].wait(20)


@app.job()
def odd_progress(ctx: Context) -> None:
    for done in (float("nan"), float("inf"), 1.0):
        ctx.progress(done, total=2)
    ctx.progress(1, total=float("nan"))


@app.job()
def fail_after_noticing(ctx: Context) -> None:
    while not ctx.cancelled:
        threading.Event().wait(0.001)
    raise ValueError("tidied up badly")


class Host:
    """A host in this process, at the other end of a socket."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self._theirs = theirs
        self.executions = Executions(Outbox(theirs), app.functions)
        self._news = wire.message_reader()
        self._next_key = 1

    def start(self, function: str, *inputs: str, count: int = 1) -> list[int]:
        first = self._next_key
        self._next_key += count
        runs = [f"r_{first + at}" for at in range(count)]
        given = dict(enumerate(inputs))
        self.executions.start(
            wire.Calls(
                f"hosted.{function}", "job", "default", first, runs, [1] * count, [0] * count, given
            )
        )
        return list(range(first, first + count))

    def hear(self, count: int) -> tuple[list[int], dict[int, wire.Done], list[wire.News]]:
        """Wait for so many ends: keys of plain completions, and the others."""
        plain: list[int] = []
        others: dict[int, wire.Done] = {}
        heard: list[wire.News] = []
        while len(plain) + len(others) < count:
            for news in self._news.feed(self.ours.recv(1 << 16)):
                assert isinstance(news, wire.News)
                heard.append(news)
                plain += news.completed.keys
                others |= {done.key: done for done in news.done}
        return plain, others, heard

    def read(self) -> list[wire.News]:
        """Wait for news."""
        heard = list(self._news.feed(self.ours.recv(1 << 16)))
        return [news for news in heard if isinstance(news, wire.News)]

    def hear_printed(self) -> list[wire.Printed]:
        """Wait for news; return what was printed."""
        return [each for news in self.read() for each in news.printed]

    def close(self) -> None:
        self.ours.close()
        self._theirs.close()


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    host.ours.settimeout(10)
    yield host
    host.close()


def test_plain_completions_come_in_columns(host: Host) -> None:
    keys = host.start("nothing", count=100)

    plain, others, heard = host.hear(100)

    assert (sorted(plain), others) == (keys, {})
    for news in heard:
        columns = news.completed
        assert len(columns.keys) == len(columns.started) == len(columns.ended) == len(columns.cpu)
        assert all(map(int.__le__, columns.started, columns.ended))


def test_functions_that_wait_run_side_by_side_and_the_next_ones_are_not_held_up(
    host: Host,
) -> None:
    _gates["many"] = threading.Event()
    waiting = host.start("wait", *['{"name": "many"}'] * 50, count=50)
    quick = host.start("nothing", count=10)

    assert sorted(host.hear(10)[0]) == quick
    _gates["many"].set()
    assert sorted(host.hear(50)[0]) == waiting


def test_rest_of_a_batch_does_not_wait_for_a_long_function_while_others_get_on(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_STALL_SECONDS", 0.05)
    _gates["shut"], _gates["open"] = threading.Event(), threading.Event()
    _gates["open"].set()
    host.start("meet", count=3)  # there are threads from here on
    host.hear(3)
    for _ in range(10):
        host.start("nothing")  # and each batch is given to one of them again
        host.hear(1)

    long, rest = host.start("wait", '{"name": "shut"}', '{"name": "open"}', count=2)
    ended: list[int] = []
    latest = time.monotonic() + 2
    while rest not in ended and time.monotonic() < latest:
        host.start("nothing")
        ended += host.hear(1)[0]

    assert rest in ended
    _gates["shut"].set()
    while long not in ended:
        ended += host.hear(1)[0]


@pytest.mark.parametrize("suffix", ["", "_async"])
class TestEndThatIsHardToTell:
    def test_result_that_cannot_be_converted_is_not_kept(self, host: Host, suffix: str) -> None:
        [key] = host.start(f"odd_result{suffix}")

        plain, _, heard = host.hear(1)

        assert plain == [key]
        remarks = [each.data for news in heard for each in news.printed]
        assert remarks == [b"the result was not kept: KeyError: 'boom'\n"]

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            ("exit_in_result", "SystemExit: 3"),
            ("unspeakable_error", "LookupError: not a word"),
        ],
    )
    def test_it_is_told_and_the_next_function_runs(
        self, host: Host, suffix: str, function: str, message: str
    ) -> None:
        [key] = host.start(function + suffix)
        _, ends, _ = host.hear(1)
        [following] = host.start(f"nothing{suffix}")

        assert (ends[key].result, ends[key].message) == ("failed", message)
        assert host.hear(1)[0] == [following]


@pytest.mark.parametrize("waiting", [0, execution._MOST_PRINTED + 1], ids=["room", "full"])
def test_print_that_is_interrupted_holds_up_no_other(host: Host, waiting: int) -> None:
    outbox = host.executions._outbox
    point = 1
    while _is_interrupted(point, partial(_print_with, outbox, waiting)):
        next_one = threading.Thread(
            target=outbox.printed, args=(point, "stdout", 0, b"x"), daemon=True
        )
        next_one.start()
        next_one.join(10)
        assert not next_one.is_alive(), f"interrupted at point {point}"
        while not any(each.key == point for each in host.hear_printed()):
            pass
        point += 1

    assert point > 3


def _print_with(outbox: Outbox, waiting: int) -> None:
    outbox._waiting_bytes = waiting
    outbox.printed(0, "stdout", 0, b"x")


def _is_interrupted(point: int, call: Callable[[], None]) -> bool:
    """Raise `Cancelled` at the n-th point of a call where Python may; return whether it has one.

    Those are the beginning of a function and the return from one, whatever it is written in.
    """
    points = iter(range(point - 1))

    def profile(_frame: object, event: str, _argument: object) -> None:
        if event != "c_call" and next(points, None) is None:
            raise Cancelled

    try:
        sys.setprofile(profile)
        call()
    except Cancelled:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_one_of_a_batch_is_cancelled_before_it_began(host: Host) -> None:
    _calls.clear()
    host.executions.cancel((2,))  # of three that are about to come, with the keys 1, 2, 3

    host.start("note", *[f'{{"name": "{name}"}}' for name in "abc"], count=3)
    plain, others, _ = host.hear(3)

    assert sorted(plain) == [1, 3]
    assert others[2].result == "cancelled"
    assert sorted(_calls) == ["a", "c"]


def test_steps_are_told_while_a_function_goes_on_and_are_in_the_order_of_their_begin(
    host: Host,
) -> None:
    _gates["nested"] = threading.Event()
    [key] = host.start("nest_steps", '{"name": "nested"}')

    told: dict[int, wire.Step] = {}
    while len(told) < 2 or told[1].result == "running":
        told |= {each.number: each.step for news in host.read() for each in news.stepped}
    _gates["nested"].set()
    _, ends, _ = host.hear(1)

    assert (told[0].name, told[0].result) == ("outer", "running")
    assert (told[1].name, told[1].result) == ("inner", "completed")
    assert [(step.name, step.result) for step in ends[key].steps] == [
        ("outer", "completed"),
        ("inner", "completed"),
    ]
    assert ends[key].steps[0].started <= ends[key].steps[1].started


def test_a_function_that_is_over_soon_tells_its_steps_with_its_end_only(host: Host) -> None:
    host.start("count_steps", '{"count": 10}')

    _, _, heard = host.hear(1)

    assert [news.stepped for news in heard] == [()] * len(heard)


def test_more_steps_than_servers_take_are_summed_up_in_the_last(host: Host) -> None:
    [few] = host.start("count_steps", '{"count": 1000}')
    [many] = host.start("count_steps", '{"count": 1123}')

    _, ends, _ = host.hear(2)

    assert [step.name for step in ends[few].steps] == [f"step {n}" for n in range(1_000)]
    assert len(ends[many].steps) == 1_000
    assert ends[many].steps[-1].name == "… and 124 more"
    assert ends[many].steps[-2].name == "step 998"


def test_a_step_that_failed_is_seen_in_the_sum(host: Host) -> None:
    [key] = host.start("fail_in_a_late_step")

    _, ends, _ = host.hear(1)

    assert ends[key].steps[-1].name == "… and 52 more"
    assert ends[key].steps[-1].result == "failed"


def test_progress_that_is_no_number_is_dropped_with_one_remark(host: Host) -> None:
    host.start("odd_progress")

    _, _, heard = host.hear(1)

    told = [(each.done, each.total) for news in heard for each in news.progressed]
    remarks = [each for news in heard for each in news.printed if each.stream == "rota"]
    assert told == [(1.0, 2.0)]
    assert [remark.data for remark in remarks] == [
        b"progress nan was not kept: it is not finite, or its total\n"
    ]


def test_host_and_server_agree_on_fences_and_steps() -> None:
    assert attempt_in(-1) == execution._ATTEMPT_MASK
    assert execution._MOST_STEPS == MAX_STEPS


def test_error_of_a_function_that_knew_of_its_cancel_is_part_of_stopping(host: Host) -> None:
    [key] = host.start("fail_after_noticing")

    host.executions.cancel((key,))
    _, ends, _ = host.hear(1)

    assert ends[key].result == "cancelled"


class Recorder:
    """An outbox in the hands of a test."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def completed(self, completion: tuple[int, ...]) -> None:
        self.ends.append("completed")

    def done(self, done: wire.Done) -> None:
        self.ends.append(done.result)

    def printed(self, key: int, stream: str, step: int, data: bytes) -> None: ...


class TestCancelAtTheEnd:
    """The cancel is raised by the first instruction after the function at which Python looks."""

    @pytest.fixture
    def seat(self) -> Seat:
        seat = Seat()
        seat.is_announced = True
        seat._is_interrupted = True  # as an interruption leaves it
        return seat

    @pytest.fixture
    def outbox(self) -> Recorder:
        return Recorder()

    @pytest.fixture
    def execution(self, outbox: Recorder) -> Execution:
        message = wire.Calls("hosted.nothing", "job", "default", 1, ["r_1"], [1], [0])
        batch = CallBatch(message, app.functions["hosted.nothing"], outbox)  # type: ignore[arg-type]
        ending = Execution(batch, 1)
        ending.is_to_stop = True
        return ending

    def ends_as(
        self, execution: Execution, seat: Seat, function: Callable[[], Any], outbox: Recorder
    ) -> str:
        results, error = _call(execution, seat, function, set())
        assert seat.execution is None
        assert not seat.is_announced
        if results or error is None:
            execution.returned(results[0], 1)
        else:
            execution.raised(error, 1)
        [end] = outbox.ends
        return end

    def test_what_has_returned_has_completed(
        self, execution: Execution, seat: Seat, outbox: Recorder
    ) -> None:
        assert self.ends_as(execution, seat, _cancelling(), outbox) == "completed"

    def test_what_has_failed_has_failed(
        self, execution: Execution, seat: Seat, outbox: Recorder
    ) -> None:
        failing = chain(map(_calling, [_cancelling()]), map(int, ["no number"]))
        function = partial(deque[object](maxlen=0).extend, failing)

        assert self.ends_as(execution, seat, function, outbox) == "failed"

    def test_what_was_interrupted_is_cancelled(
        self, execution: Execution, seat: Seat, outbox: Recorder
    ) -> None:
        def interrupted() -> None:
            _cancelling()()
            for _ in range(1_000):
                pass

        assert self.ends_as(execution, seat, interrupted, outbox) == "cancelled"

    def test_nothing_is_raised_after_the_seat_was_left(self, seat: Seat) -> None:
        seat.vacate()
        seat.interrupt(1)

        for _ in range(1_000):
            pass

        assert not seat.is_announced


def _cancelling() -> Callable[[], Any]:
    """A function without any Python in it that raises `Cancelled` in its own thread."""
    thread_id = ctypes.c_ulong(threading.get_ident())
    return partial(
        ctypes.pythonapi.PyThreadState_SetAsyncExc, thread_id, ctypes.py_object(Cancelled)
    )


_calling: Callable[[Callable[[], Any]], int] = partial.__call__  # type: ignore[assignment]


def test_processor_time_of_a_long_function_is_its_own() -> None:
    watch = Stopwatch()
    watch.start(is_first=True)
    for _ in range(10):
        watch.stop(watch.start(), watch.start())

    started = watch.start()
    threading.Event().wait(0.02)
    cpu = watch.stop(started, Stopwatch().start())

    assert 0 <= cpu < 15_000


def test_processor_time_of_a_function_that_computes_is_nearly_all_of_its_time() -> None:
    watch = Stopwatch()
    watch.start(is_first=True)
    started = watch.start()
    before = time.thread_time_ns()
    while time.thread_time_ns() < before + 5_000_000:
        pass

    cpu = watch.stop(started, Stopwatch().start())

    assert cpu >= 4_900
