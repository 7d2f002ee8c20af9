"""Universes in which everything goes wrong, and what the witness says of them.

One that fails names its seed: `python tools/universe.py SEED --world WORLD` lets it pass again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.adapters.store.scripts import gatekeeper
from rota.dispatcher.desk import Desk
from rota.domain import retry
from rota.domain.gates import QUEUED
from rota.domain.placement import Placement, Verdict
from rota.domain.shared_keys import SECOND, Bucket
from rota.domain.spec import Delivery
from rota.domain.states import LEASED_STATES
from rota.testing.universes import Violation, explore, visit
from rota.testing.universes import worker as universe_worker
from rota.testing.universes.memory import gating
from rota.testing.universes.memory import store as memory_store

TOOL = Path(__file__).parents[2] / "tools" / "universe.py"
# Without these a universe would prove little.
MUST_HAPPEN = frozenset(
    {
        "cancel",
        "doubled order",
        "doubled request",
        "end TIMED_OUT",
        "end killed",
        "fenced report",
        "lease passed",
        "lost message",
        "resolve",
        "server crash",
        "server frozen",
        "worker crash",
        "worker frozen",
    }
)
Break = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2_000, 200))
def test_promises_hold_in_every_universe(first: int) -> None:
    tally = explore("memory", range(first, first + 200))

    assert tally.keys() >= MUST_HAPPEN


def test_promises_hold_in_some_universes_at_once() -> None:
    explore("memory", range(10_000, 10_030))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 90, 15))
def test_promises_hold_on_a_real_store(first: int) -> None:
    explore("sqlite", range(first, first + 15))


@pytest.mark.parametrize("world", ["memory", "sqlite"])
def test_a_seed_tells_the_same_story_in_every_process(world: str) -> None:
    stories = {_story(7, world, hash_seed) for hash_seed in ("1", "2")}

    assert stories == {"\n".join(visit(world, 7).told(10_000)) + "\n"}


def _story(seed: int, world: str, hash_seed: str) -> str:
    command = [sys.executable, str(TOOL), str(seed), "--world", world]
    environment = {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_broken_promise_names_the_seed_that_breaks_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _place_anything(monkeypatch)

    with pytest.raises(Violation, match=r"tools/universe\.py \d+ --world memory") as broken:
        explore("memory", range(50))

    [note] = broken.value.__notes__
    seed = int(note.split("universe.py ")[1].split()[0])
    with pytest.raises(Violation) as again:
        visit("memory", seed)
    assert str(again.value) == str(broken.value)


# --- what the witness sees: each rule, taken away


def _place_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Placement, "offer", lambda *_: Verdict.TAKEN)


def _fill_buckets_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def level_at(bucket: Bucket, now: int) -> float:
        return bucket.level + (now - bucket.at) / SECOND * bucket.rule.rate

    monkeypatch.setattr(Bucket, "level_at", level_at)


def _share_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gating, "shortage", lambda *_, **__: None)


def _open_all_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gating, "admit", lambda *_: QUEUED)


def _outlive_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(universe_worker, "guard_margin", lambda _: timedelta(seconds=-12))


def _ignore_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "_holds", lambda run, *_: run.state in LEASED_STATES)


def _retry_what_may_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt_ended(ending: Any, *rest: Any) -> Any:
        return retry.attempt_ended(replace(ending, delivery=Delivery.AT_LEAST_ONCE), *rest)

    monkeypatch.setattr(memory_store, "attempt_ended", attempt_ended)


def _forget_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt_ended(ending: Any, *rest: Any) -> Any:
        return retry.attempt_ended(replace(ending, is_cancel_requested=False), *rest)

    monkeypatch.setattr(memory_store, "attempt_ended", attempt_ended)


def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt_ended(ending: Any, *rest: Any) -> Any:
        verdict = retry.attempt_ended(ending, *rest)
        return replace(verdict, eligible_at=verdict.eligible_at and ending.now)

    monkeypatch.setattr(memory_store, "attempt_ended", attempt_ended)


def _reap_early(monkeypatch: pytest.MonkeyPatch) -> None:
    register = memory_store.MemoryStore.register

    async def short_lease(store: Any, hello: Any, lease: timedelta, server: str = "") -> Any:
        session, wakes = await register(store, hello, lease / 4, server)
        return replace(session, lease=lease), wakes

    monkeypatch.setattr(memory_store.MemoryStore, "register", short_lease)
    monkeypatch.setattr("rota.scheduler.lease_reaper.is_silent", lambda *_: True)


def _fire_what_was_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store.MemoryStore, "_is_current", lambda *_: True)


def _give_up_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "never_arrived", lambda _, missing: missing)


def _open_all_gates_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatekeeper, "admit", lambda *_: QUEUED)


BROKEN = "The same again"  # one promise or another, as luck will have it
SEEN: Mapping[Break, str] = {  # and what the witness says
    _place_anything: "more than worker-. has",
    _fill_buckets_without_end: "too fast",
    _share_without_limit: "is overdrawn",
    _open_all_gates: "overlap|max_concurrency",
    _outlive_the_lease: BROKEN,
    _ignore_fences: BROKEN,
    _retry_what_may_run_once: "at most once",
    _forget_cancels: "an attempt after a cancel",
    _retry_at_once: "before its back-off",
    _reap_early: BROKEN,
    _fire_what_was_fired: "exists already",
    _give_up_what_is_on_its_way: BROKEN,
}
SEEN_IN_SQL: Mapping[Break, str] = {
    _place_anything: "more than worker-. has",
    _open_all_gates_of_the_store: "overlap|max_concurrency",
    _give_up_what_is_on_its_way: BROKEN,
    _outlive_the_lease: BROKEN,
}


@pytest.mark.parametrize("take_away", SEEN)
def test_the_witness_misses_no_rule(take_away: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away(monkeypatch)

    with pytest.raises(AssertionError, match=SEEN[take_away]):
        explore("memory", range(200))


@pytest.mark.slow
@pytest.mark.parametrize("take_away", SEEN_IN_SQL)
def test_nor_does_it_on_a_real_store(take_away: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away(monkeypatch)

    with pytest.raises(AssertionError, match=SEEN_IN_SQL[take_away]):
        explore("sqlite", range(10, 60))
