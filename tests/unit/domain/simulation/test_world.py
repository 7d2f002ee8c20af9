"""What a world is given, and what it tells."""

from __future__ import annotations

from dataclasses import replace

from rota.domain.keys import Counted, Key, Rate
from rota.domain.simulation import Observer, SimRun, SimWorker, Starts, World
from tests.properties.simulated import Ledger, shape, worker

LICENCE = "resource:p/licence"


class Told(Observer):
    """Keeps what runs wait for."""

    def __init__(self) -> None:
        self.blocked: list[tuple[str, Key]] = []
        self.queued: list[str] = []

    def on_queued(self, run: SimRun, at: float) -> None:
        self.queued.append(run.id)

    def on_blocked(self, run: SimRun, key: Key, at: float, eligible_at: float | None) -> None:
        self.blocked.append((run.id, key))


def run(name: str, at: float = 0.0, seconds: float = 10.0) -> SimRun:
    return SimRun(name, "job", at, seconds, share="p/a", expected=seconds)


def starts(world: World, *runs: SimRun, until: float = 1_000.0) -> dict[str, float]:
    """When each run starts."""
    seen = Starts()
    world.simulate(runs, until, seen)
    return {start.run.id: start.at for start in seen.all}


def test_what_is_at_work_keeps_its_worker_until_its_end() -> None:
    world = World([worker("w", slots=1)], now=100.0)
    world.preload_running(run("going", seconds=50.0), "w", started_at=80.0)

    assert starts(world, run("next", at=101.0)) == {"next": 130.0}


def test_tokens_come_again_as_of_now_and_nobody_pays_twice() -> None:
    rate = {"rate:p/s3": Rate(tokens=1, per=10.0, burst=2)}
    world = World([worker("w")], rate, now=100.0, levels={"rate:p/s3": 0.5})
    taking = {"rate:p/s3": 1}
    world.preload_running(replace(run("going"), demands=taking), "w", started_at=99.0)

    runs = [replace(run(name, at=100.0), demands=taking) for name in ("a", "b")]

    assert starts(world, *runs) == {"a": 105.0, "b": 115.0}


def test_what_waits_already_goes_before_what_comes() -> None:
    world = World([worker("w", slots=1)], now=5.0)
    world.preload_running(run("going"), "w", started_at=0.0)
    waiting = [run("first", at=1.0), run("second", at=1.0)]

    assert starts(world, *waiting, run("new", at=6.0)) == {
        "first": 10.0,
        "second": 20.0,
        "new": 30.0,
    }


def test_what_comes_because_of_another_takes_its_place_in_time() -> None:
    world = World([worker("w", slots=1)])
    world.come_later(run("follower", at=12.0))

    assert starts(world, run("a"), run("b", at=11.0)) == {"a": 0.0, "b": 11.0, "follower": 21.0}


def test_age_counts_at_a_shared_key_and_is_not_only_that_in_this_world() -> None:
    world = World([worker("w", slots=4)], {LICENCE: Counted(1)})
    world.preload_running(replace(run("going"), demands={LICENCE: 1}), "w", started_at=0.0)
    old = replace(run("old"), demands={LICENCE: 1}, created_at=-200.0)
    urgent = replace(run("urgent"), demands={LICENCE: 1}, priority=9)

    assert starts(world, urgent, old) == {"old": 10.0, "urgent": 20.0}


def test_a_run_that_finds_no_worker_keeps_others_from_its_keys_for_a_while_only() -> None:
    full = replace(worker("full", slots=1), pool="busy")
    world = World([worker("w"), full], {LICENCE: Counted(1)})
    world.preload_running(replace(run("going", seconds=100.0), pool="busy"), "full", 0.0)
    queued = replace(run("queued"), pool="busy", demands={LICENCE: 1})
    other = replace(run("other", at=1.0, seconds=200.0), demands={LICENCE: 1})
    behind = replace(run("behind", at=2.0), pool="busy")

    # The licence is gone when the worker comes, which goes on with who needs none.
    assert starts(world, queued, other, behind) == {"other": 10.0, "behind": 100.0, "queued": 210.0}


def test_a_run_that_no_worker_could_take_waits_for_one_and_holds_nobody_up() -> None:
    told, labelled = Told(), SimWorker("l", "default", {"slots": 1000}, {"zone": "a"})
    huge = replace(run("huge"), shape=shape(memory=64))
    elsewhere = replace(run("elsewhere"), pool="gpu")
    needy = replace(run("needy"), shape='{"needs":{"zone":"b"}}')

    World([worker(memory=8), labelled]).simulate([huge, elsewhere, needy, run("a")], 1.0, told)

    assert told.blocked == [
        ("huge", "worker:default"),
        ("elsewhere", "worker:gpu"),
        ("needy", "worker:default"),
    ]
    assert told.queued == ["a"]


def test_a_jobs_own_limit_comes_before_the_queue() -> None:
    told = Told()
    runs = [replace(run(name), group="g", limit=1) for name in "abc"]

    World([worker()]).simulate(runs, 15.0, told)

    assert told.blocked == [("b", "job:g"), ("c", "job:g"), ("c", "job:g")]
    assert told.queued == ["a", "b"]


def test_a_writer_is_not_passed_by_readers_that_come_after_it() -> None:
    rules = {"resource:p/catalog": Counted(100)}
    readers = [replace(run(f"r{n}", at=4.0 * n), demands={"resource:p/catalog": 1}) for n in (0, 2)]
    writer = replace(run("writer", at=4.0), demands={"resource:p/catalog": 100})

    found = starts(World([worker()], rules), readers[0], writer, readers[1])

    assert found == {"r0": 0.0, "writer": 10.0, "r2": 20.0}


def test_only_what_must_be_over_in_time_backfills_before_a_reservation() -> None:
    workers = [worker(memory=4)]
    first = replace(run("first", seconds=20.0), shape=shape(memory=3), timeout=20.0)
    large = replace(run("large", at=1.0), shape=shape(memory=4), share="p/b")
    small = replace(run("small", at=2.0, seconds=5.0), shape=shape(memory=1), share="p/c")
    ledger = Ledger(workers)

    runs = [first, large, replace(small, id="in time", timeout=10.0), small]
    World(workers).simulate(runs, 1_000.0, ledger)

    assert {start.run.id: start.at for start in ledger.starts} == {
        "first": 0.0,
        "in time": 2.0,
        "large": 20.0,
        "small": 30.0,
    }


def test_what_is_too_late_leaves_the_queue_and_its_keys() -> None:
    rules = {LICENCE: Counted(1)}
    world = World([worker("w", slots=2)], rules)
    taking = {LICENCE: 1}
    first = replace(run("first"), demands=taking)
    late = replace(run("late", at=1.0), demands=taking, drop_at=9.0)
    after = replace(run("after", at=2.0), demands=taking)

    assert starts(world, first, late, after) == {"first": 0.0, "after": 10.0}


def test_no_worker_is_kept_free_for_what_is_too_late() -> None:
    world = World([worker("w", slots=2, cpu=2)])
    small, large = shape(cpu=1), shape(cpu=2)
    going = replace(run("going", seconds=50.0), shape=small)
    late = replace(run("late", at=1.0), shape=large, drop_at=9.0)
    short = replace(run("short", at=2.0, seconds=100.0), shape=small)

    assert starts(world, going, late, short) == {"going": 0.0, "short": 9.0}
