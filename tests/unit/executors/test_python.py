"""What the worker makes of a host's news."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

import pytest

from rota.domain.spec import JobSpec, JobType
from rota.executors.python import PythonExecutor
from rota.ports.executor import Completions, Exit, JobBatch, OutputSink, Spawner
from rota.ports.work import Fence, Outcome, StepOutcome, WorkBatch
from rota.sdk.host import wire

pytestmark = pytest.mark.anyio

SPEC = JobSpec("job", type=JobType.PYTHON, function="app.job", timeout=timedelta(hours=1))
FENCES = [Fence(f"r_{number}", 1) for number in range(3)]
BATCH = WorkBatch([fence.run for fence in FENCES], [1] * 3, [7, 8, 9], [("j_1", 1)])


def now() -> int:
    return time.monotonic_ns() // 1000


class Reports:
    """Notes what the executor reports; the store's clock is the machine's."""

    def __init__(self) -> None:
        self.completions: list[Completions] = []
        self.steps: list[tuple[str, int, StepOutcome]] = []
        self.has_results = asyncio.Event()
        self.results: dict[str, str] = {}

    def store_micros(self) -> int:
        return now()

    def output(self, fence: Fence) -> OutputSink:
        raise AssertionError("nothing is printed")

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None: ...

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        self.steps.append((fence.run, number, step))
        return step

    def completed(self, completions: Completions) -> None:
        self.completions.append(completions)

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        self.results |= {outcome.run: outcome.result for outcome in outcomes}
        self.has_results.set()


class Connection:
    def __init__(self) -> None:
        self.sent: list[wire.Order] = []
        self.has_cancelled = asyncio.Event()

    def send(self, order: wire.Order) -> None:
        self.sent.append(order)
        if isinstance(order, wire.Cancel):
            self.has_cancelled.set()


class Host:
    """A host that says what a test lets it say."""

    functions = ("app.job",)
    is_open = True
    is_killed = False

    def __init__(self, hear: Callable[[wire.News], None]) -> None:
        self.say = hear
        self.connection = Connection()
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        self.is_killed = True

    async def stop(self) -> None: ...


class Scene:
    def __init__(self) -> None:
        self.reports = Reports()
        self.executor = PythonExecutor(self.reports, NO_SPAWNER, "module:app")
        self.host: Host

    async def start_host(
        self, app: str, spawner: Spawner, hear: Callable[[wire.News], None]
    ) -> Host:
        self.host = Host(hear)
        return self.host

    def sent(self) -> wire.Order:
        return self.host.connection.sent[-1]


NO_SPAWNER: Spawner = None  # type: ignore[assignment]  # the host is none of its processes


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    scene = Scene()
    monkeypatch.setattr("rota.executors.python.start_host", scene.start_host)
    await scene.executor.ready()
    scene.executor.start([JobBatch(SPEC, BATCH, FENCES)])
    yield scene
    await scene.executor.close()


def completed(*keys: int, ended: int, **outputs: bytes) -> wire.News:
    count = len(keys)
    return wire.News(
        completed=wire.Completed(
            list(keys),
            [ended] * count,
            [ended] * count,
            [4] * count,
            {int(at.removeprefix("at_")): output for at, output in outputs.items()},
        )
    )


async def test_a_dispatch_is_one_message_with_consecutive_keys(scene: Scene) -> None:
    scene.executor.start([JobBatch(SPEC, BATCH, FENCES)])

    first, second = scene.host.connection.sent

    runs = [fence.run for fence in FENCES]
    assert first == wire.Run(
        (wire.Calls("app.job", "job", "default", 1, runs, [1, 1, 1], [7, 8, 9]),)
    )
    assert isinstance(second, wire.Run)
    assert [batch.first_key for batch in second.batches] == [4]


async def test_completions_keep_their_columns_and_their_order(scene: Scene) -> None:
    scene.host.say(completed(3, 1, ended=now(), at_1=b'{"a":1}'))

    [columns] = scene.reports.completions
    assert columns.fences == [FENCES[2], FENCES[0]]
    assert (columns.cpu_micros, columns.outputs) == ([4, 4], {1: '{"a":1}'})


@pytest.mark.parametrize(
    "output",
    [b"12345678901234567890123", b"[" * 5_000 + b"]" * 5_000, b"no JSON", b'"\xff"'],
    ids=["large number", "deep", "no JSON", "no text"],
)
async def test_result_that_rota_cannot_carry_is_dropped(scene: Scene, output: bytes) -> None:
    scene.host.say(completed(1, ended=now(), at_0=output))
    scene.host.say(wire.News(done=(wire.Done(2, "completed", now(), now(), output=output),)))

    [columns] = scene.reports.completions
    assert columns.outputs == {}
    assert scene.reports.results == {"r_1": "COMPLETED"}


class TestStopThatCrossesTheEnd:
    """A host reports an end that came before the stop, or after."""

    @pytest.fixture
    def ended_before(self, scene: Scene) -> int:
        before = now()
        scene.executor.cancel([FENCES[0]])
        assert scene.sent() == wire.Cancel((1,))
        return before

    @pytest.mark.parametrize("said", ["completed", "failed"])
    async def test_what_ended_before_it_was_cancelled_ended_so(
        self, scene: Scene, ended_before: int, said: str
    ) -> None:
        scene.host.say(wire.News(done=(wire.Done(1, said, 1, ended_before),)))

        assert scene.reports.results == {"r_0": said.upper()}

    async def test_an_error_of_its_own_after_the_cancel_is_a_failure(
        self, scene: Scene, ended_before: int
    ) -> None:
        scene.host.say(wire.News(done=(wire.Done(1, "failed", 1, now() + 1),)))

        assert scene.reports.results == {"r_0": "FAILED"}

    async def test_what_the_cancel_ended_is_cancelled_and_its_neighbours_complete(
        self, scene: Scene, ended_before: int
    ) -> None:
        scene.host.say(wire.News(done=(wire.Done(1, "cancelled", 1, now() + 1),)))
        scene.host.say(completed(2, 3, ended=now()))

        assert scene.reports.results == {"r_0": "CANCELLED"}
        assert [columns.fences for columns in scene.reports.completions] == [FENCES[1:]]

    async def test_what_completed_in_time_has_not_timed_out(self, scene: Scene) -> None:
        before = now()
        spec = JobSpec("job", type=JobType.PYTHON, function="app.job", timeout=timedelta(0))
        late = [Fence("r_late", 1), Fence("r_slow", 1)]
        batch = WorkBatch(["r_late", "r_slow"], [1, 1], [0, 0], [("j_1", 1)])
        scene.executor.start([JobBatch(spec, batch, late)])
        await asyncio.wait_for(scene.host.connection.has_cancelled.wait(), 10)

        scene.host.say(completed(4, ended=before))
        scene.host.say(completed(5, ended=now() + 1))

        assert scene.reports.results == {"r_late": "COMPLETED", "r_slow": "TIMED_OUT"}


async def test_attempts_of_a_host_that_died_are_lost(scene: Scene) -> None:
    scene.host.ended.set_result(Exit(None, 9))
    await asyncio.wait_for(scene.reports.has_results.wait(), 10)

    assert scene.reports.results == {fence.run: "LOST" for fence in FENCES}


async def test_steps_are_told_by_the_store_s_clock_and_none_of_what_has_ended(
    scene: Scene,
) -> None:
    began = now() - 2_000_000
    step = wire.Step("load", "running", 0.0, began)
    sent = scene.sent()
    assert isinstance(sent, wire.Run)
    [key, *_] = sent.batches[0].keys
    scene.host.say(wire.News(stepped=(wire.Stepped(key, 0, step), wire.Stepped(99, 0, step))))

    [(run, number, told)] = scene.reports.steps
    assert (run, number, told.name, told.result) == ("r_0", 0, "load", "running")
    assert abs(told.started_at - began) < 1_000_000
