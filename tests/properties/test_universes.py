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

import msgspec
import pytest

from rota.domain import retry
from rota.domain.carts import commands, steps
from rota.domain.carts.states import FINAL_CART_STATES, CartState, ItemState, item_state_of
from rota.domain.gates import QUEUED, ActiveRun, without_worker
from rota.domain.keys import SECOND, Bucket
from rota.domain.placement import Placement, Verdict
from rota.domain.spec import Delivery
from rota.domain.states import LEASED_STATES, RunState
from rota.server.dispatcher.desk import Desk
from rota.store import carts, ends, gates, runs
from rota.worker.attempts import Attempts
from testkit.universes import Violation, explore, visit
from testkit.universes import worker as universe_worker
from testkit.universes.memory import cart_rows, gating
from testkit.universes.memory import store as memory_store
from testkit.universes.memory.cart_rows import StoredCart
from testkit.universes.memory.carts import MemoryCarts
from testkit.universes.memory.claiming import Claims
from testkit.universes.memory.rows import StoredRun
from testkit.universes.memory.waiting import MemoryWaiting
from testkit.universes.memory.world import MemoryWorld

TOOL = Path(__file__).parents[2] / "tools" / "universe.py"
# Without these a universe would prove little.
MUST_HAPPEN = frozenset(
    {
        "cancel",
        "cart",
        "cart CANCELLED",
        "cart COMPLETED",
        "cart FAILED",
        "cart PARTIAL",
        "cart cancelled",
        "cart paused",
        "cart resumed",
        "doubled order",
        "doubled request",
        "end TIMED_OUT",
        "end killed",
        "fenced report",
        "hold",
        "lease passed",
        "let go",
        "lost message",
        "resolve",
        "server crash",
        "server frozen",
        "start alone",
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
        session = await register(store, hello, lease / 4, server)
        return replace(session, lease=lease)

    monkeypatch.setattr(memory_store.MemoryStore, "register", short_lease)
    monkeypatch.setattr("rota.server.scheduler.lease_reaper.is_silent", lambda *_: True)


def _fire_what_was_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store.MemoryStore, "_is_current", lambda *_: True)


def _fire_beside_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    def insert_two(store: Any, job: Any, planned: Any) -> Any:
        insert(store, job, replace(planned, due_at=planned.due_at + timedelta(seconds=1)))
        return insert(store, job, planned)

    insert = memory_store.MemoryStore._insert_due
    monkeypatch.setattr(memory_store.MemoryStore, "_insert_due", insert_two)


def _fire_a_little_late(monkeypatch: pytest.MonkeyPatch) -> None:
    def insert_late(store: Any, job: Any, planned: Any) -> Any:
        return insert(store, job, replace(planned, due_at=planned.due_at + timedelta(seconds=1)))

    insert = memory_store.MemoryStore._insert_due
    monkeypatch.setattr(memory_store.MemoryStore, "_insert_due", insert_late)


def _retry_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt_ended(ending: Any, *rest: Any) -> Any:
        return retry.attempt_ended(replace(ending, failures=0), *rest)

    monkeypatch.setattr(memory_store, "attempt_ended", attempt_ended)


def _repeat_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(claims: Claims, run: StoredRun, session: Any, now: int) -> None:
        claim_next(claims, run, session, now)
        run.attempt = 1

    claim_next = Claims._claim
    monkeypatch.setattr(Claims, "_claim", claim)


def _give_up_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "never_arrived", lambda _, ours, beat: ours.difference(beat.held))


def _say_nothing_of_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Attempts.beat

    def uncounted(attempts: Attempts, stream: int) -> Any:
        return msgspec.structs.replace(beat(attempts, stream), received=None)

    monkeypatch.setattr(Attempts, "beat", uncounted)


def _take_work_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempts, "_is_next", lambda *_: True)


def _leave_nobody_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredRun, "takes", lambda run, capacity: run.known.takes(capacity, 0))


def _set_nobody_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "goes_alone", lambda *_: False)


def _open_all_gates_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "admit", lambda *_: QUEUED)


def _open_waves_early(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = steps._go_on

    def impatient(facts: Any, now: Any) -> Any:
        is_begun = facts.wave and facts.pending_wave not in (None, facts.current_wave)
        return steps.Open(facts.pending_wave, True) if is_begun else go_on(facts, now)

    monkeypatch.setattr(steps, "_go_on", impatient)


def _never_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_soak", lambda *_: None)


def _forgive_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "is_breached", lambda _: False)


def _start_all_items_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "window", lambda facts: facts.items)


def _be_lax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "window", lambda facts: facts.rules.max_parallel or facts.items)


def _repeat_what_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    _see_items_as(monkeypatch, {RunState.COMPLETED: ItemState.PENDING})


def _leave_retries_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for its back-off keeps no wave open."""
    _see_items_as(monkeypatch, {RunState.SCHEDULED: ItemState.COMPLETED})


def _see_items_as(monkeypatch: pytest.MonkeyPatch, odd: Mapping[RunState, ItemState]) -> None:
    for module in (cart_rows, carts):
        monkeypatch.setattr(module, "item_state_of", lambda run: odd.get(run, item_state_of(run)))


def _call_every_end_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_end_of", lambda _: CartState.COMPLETED)


def _misfile_what_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    _see_items_as(monkeypatch, {RunState.COMPLETED: ItemState.CANCELLED})


def _skip_what_is_left_of_any_cart(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip_rest(facts: Any, now: Any) -> Any:
        return steps.SkipRest() if facts.pending_wave is not None else go_on(facts, now)

    go_on = steps._go_on
    monkeypatch.setattr(steps, "_go_on", skip_rest)


def _cancel_no_cart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "cancel", lambda _: False)


def _lose_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(carts: MemoryCarts, new: Any, items: Any) -> None:
        submit_all(carts, new, items[1:])

    submit_all = MemoryCarts.submit
    monkeypatch.setattr(MemoryCarts, "submit", submit)


def _lose_the_carts_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def live(world: MemoryWorld) -> Any:
        return [cart for cart in await all_carts(world) if cart.state not in FINAL_CART_STATES]

    all_carts = MemoryWorld.all_carts
    monkeypatch.setattr(MemoryWorld, "all_carts", live)


def _let_others_end_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActiveRun, "gives_way", True)


def _let_paused_carts_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredCart, "is_held", False)


def _hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def do_nothing(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(MemoryWaiting, "hold_run", do_nothing)
    monkeypatch.setattr(MemoryWaiting, "let_go", do_nothing)


def _follow_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryWaiting, "_is_new", lambda *_: True)


def _forget_to_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryWaiting, "_is_new", lambda *_: False)


def _follow_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(book: Any, run: Any, now: int) -> None:
        settled(book, run, now)
        if run.state is RunState.FAILED:
            book.ends[run.id] = run

    settled = gating.Book.settle
    monkeypatch.setattr(gating.Book, "settle", settle)


def _let_whoever_fits_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a person's hold were the lack of a worker."""
    monkeypatch.setattr(runs, "held", lambda *_: without_worker("default", "", ["luck"]))


def _judge_carts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next look, not in the transaction in which one failed too many."""
    monkeypatch.setattr(gating.Book, "_judge", lambda *_: None)


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
    _fire_beside_the_ledger: "a run that nobody asked for",
    _fire_a_little_late: "answered what was not due",
    _retry_for_ever: "too many failures",
    _repeat_fences: "a fence did not grow",
    _give_up_what_is_on_its_way: BROKEN,
    _say_nothing_of_what_came: BROKEN,
    _take_work_again: "one attempt began twice",
    _leave_nobody_alone: "more than worker-. has",
    _open_waves_early: "two waves of a cart at once",
    _never_soak: "a wave before its time",
    _forgive_failures: "too many had failed",
    _judge_carts_later: "too many had failed",
    _start_all_items_at_once: "max_parallel passed",
    _be_lax: "strict was not strict",
    _repeat_what_completed: "an item has two runs",
    _leave_retries_behind: "an item of an earlier wave after a later one",
    _misfile_what_completed: "is not as its run",
    _call_every_end_good: "a cart ended as COMPLETED",
    _skip_what_is_left_of_any_cart: "a cart ended as PARTIAL",
    _cancel_no_cart: "a cart that was stopped went on|a cart ended as",
    _lose_an_item: "other items than it had",
    _lose_the_carts_that_ended: "acknowledged carts vanished",
    _let_others_end_what_is_held: "a held run did not stay",
    _let_paused_carts_go: "a cart that was stopped went on",
    _hold_nothing: "a held run was claimed",
    _follow_again: "exists already",
    _forget_to_follow: "does not come to rest",
    _follow_what_failed: "follows what has not completed",
}
SEEN_IN_SQL: Mapping[Break, str] = {
    _place_anything: "more than worker-. has",
    _open_all_gates_of_the_store: "overlap|max_concurrency",
    _give_up_what_is_on_its_way: BROKEN,
    _outlive_the_lease: BROKEN,
    _open_waves_early: "two waves of a cart at once",
    _forgive_failures: "too many had failed",
    _let_whoever_fits_go: "a held run was claimed|a held run did not stay",
    _set_nobody_apart: "more than worker-. has",
    _let_others_end_what_is_held: "a held run did not stay",
    _misfile_what_completed: "is not as its run",
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
