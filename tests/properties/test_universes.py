"""Universes in which everything goes wrong, and what the witness says of them.

One that fails names its seed: `python tools/universe.py SEED` lets it pass again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.domain import gates, keys, lease, retry, shape
from rota.domain.carts import commands, steps
from rota.domain.carts import facts as budget
from rota.domain.carts import facts as states
from rota.domain.carts.facts import FINAL_CART_STATES, CartState, ItemState
from rota.domain.gates import ActiveRun
from rota.domain.ids import SHARD_COUNT, RunId, new_run_id
from rota.domain.keys import SECOND, Bucket
from rota.domain.run import Trigger
from rota.domain.shape import Placement, Verdict
from rota.domain.spec import Delivery
from rota.domain.states import RunState
from rota.ports.records import Firing, NewRun, Ownership, RunQuery
from rota.ports.work import MAX_TOTAL, Fence, Report
from rota.server.dispatcher.desk import Desk
from rota.server.scheduler.shards import HeldShards
from rota.store.script import shared_statements
from rota.store.sqlite import driver
from rota.store.store import SqlStore
from rota.worker.attempts import Attempts
from testkit.builders import outcome, reported
from testkit.clock import START
from testkit.universes import Violation, explore, visit
from testkit.universes import worker as universe_worker
from testkit.universes.plan import Plan, Weather
from testkit.universes.world import World

TOOL = Path(__file__).parents[2] / "tools" / "universe.py"
AT_ONCE = 10  # universes in a test
# Without these universes would prove little.
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

FAILED_ONCE: Mapping[int, str] = {
    111: "an attempt of a cart was reported that had never begun",
    607: "a wave soaked from when its worker, whose clock is slow, took the end to be",
    806: "a cart was to be resumed that still looked paused while it came to an early end",
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, 1_000, 100))
def test_promises_hold_in_every_universe(first: int) -> None:
    tally = explore(range(first, first + 100))

    assert tally.keys() >= MUST_HAPPEN


def test_promises_hold_in_some_universes_at_once() -> None:
    explore(range(10_000, 10_000 + AT_ONCE))


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_seed_that_failed_once_does_not_fail_again(seed: int) -> None:
    visit(seed)


def test_a_universe_is_the_same_alone_and_after_another_one() -> None:
    assert explore([3, 4]) == visit(3).tally + visit(4).tally


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    stories = {_story(7, hash_seed) for hash_seed in ("1", "2")}

    assert stories == {"\n".join(visit(7).told(10_000)) + "\n"}


def _story(seed: int, hash_seed: str) -> str:
    command = [sys.executable, str(TOOL), str(seed)]
    environment = {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_broken_promise_names_the_seed_that_breaks_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place_anything(monkeypatch)

    with pytest.raises(Violation) as broken:
        explore(range(50))

    [note] = broken.value.__notes__
    seed = int(note.removeprefix("The same again: python tools/universe.py "))
    with pytest.raises(Violation) as again:
        visit(seed)
    assert str(again.value) == str(broken.value)


# --- what the witness sees: each rule, taken away

Break = Callable[[pytest.MonkeyPatch], None]


def replaced(owner: object, name: str, replacement: Any) -> Break:
    """Replace an attribute of a class or of a module."""
    return lambda monkeypatch: monkeypatch.setattr(owner, name, replacement)


def decided(module: Any, name: str, decision: Callable[..., Any]) -> Break:
    """Replace a function of the domain wherever it was imported, but for the test kit.

    `decision` is given the function first, and then its arguments.
    """
    original = getattr(module, name)

    def decide(*arguments: Any, **named: Any) -> Any:
        return decision(original, *arguments, **named)

    def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
        for user in [found for name, found in sys.modules.items() if _is_tested(name)]:
            for used, value in list(vars(user).items()):
                if value is original:
                    monkeypatch.setattr(user, used, decide)

    return take_away


def _is_tested(module: str) -> bool:
    return module.startswith("rota.") and not module.startswith("rota.testing")


def reworded(statement: str, *words: tuple[str, str]) -> Break:
    """Change a statement of the store: of each pair of words the second instead of the first."""

    def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
        text = shared_statements()[statement].text
        for old, new in words:
            assert old in text, f"{statement} does not say {old!r}"
            text = text.replace(old, new)
        changed = driver._Prepared(replace(shared_statements()[statement], text=text))
        monkeypatch.setitem(driver._prepared_statements(), statement, changed)

    return take_away


def all_of(*breaks: Break) -> Break:
    """Combine several, where a rule is guarded more than once."""

    def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
        for each in breaks:
            each(monkeypatch)

    return take_away


def planned(**changes: Any) -> Break:
    """Draw universes in which what the rule is about happens more often."""
    drawn = Plan.drawn
    return replaced(Plan, "drawn", lambda random: replace(drawn(random), **changes))


def ending_as(**changes: Any) -> Break:
    """End attempts as if something about them were otherwise."""
    return decided(
        retry,
        "attempt_ended",
        lambda decide, ending, *rest: decide(replace(ending, **changes), *rest),
    )


def items_as(odd: Mapping[RunState, ItemState]) -> Break:
    """Take items for what they are not, by the states of their runs."""
    return decided(
        states, "item_state_of", lambda state_of, run, *of: odd.get(run, state_of(run, *of))
    )


many_faults = planned(faults=16)
many_echoes = planned(weather=Weather(0.0, doubling=0.5, delay=0.0), failing=0.5, submissions=12)
many_holds = planned(holds=12)
many_submissions = planned(submissions=15)
many_failing_carts = planned(carts=6, failing=0.6)
CROWDED: Mapping[str, Break] = {
    "faults": many_faults,
    "echoes": many_echoes,
    "holds": many_holds,
    "submissions": many_submissions,
    "failing carts": many_failing_carts,
}
place_anything = replaced(Placement, "offer", lambda *_: Verdict.TAKEN)


def level_without_end(bucket: Bucket, now: int) -> float:
    return bucket.level + (now - bucket.at) / SECOND * bucket.rule.rate


def retry_at_once(decide: Any, ending: Any, *rest: Any) -> Any:
    verdict = decide(ending, *rest)
    return replace(verdict, eligible_at=verdict.eligible_at and ending.now)


def claim_that_everything_came(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = Attempts.beat

    def counted_ahead(attempts: Attempts, stream: int) -> Any:
        return msgspec.structs.replace(beat(attempts, stream), received=MAX_TOTAL)

    monkeypatch.setattr(Attempts, "beat", counted_ahead)


def end_whatever_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a report for one of the attempt at hand, whoever has that."""
    finish = SqlStore.finish

    async def finish_both(store: SqlStore, session: Any, report: Report, **named: Any) -> Any:
        for fence in report.fences():
            [run] = await store.runs(RunQuery(ids=[RunId(fence.run)]))
            if run.session is not None:
                at_hand = Fence(run.id, run.attempt)
                result = next((o.result for o in report.outcomes if o.fence == fence), "COMPLETED")
                await finish(store, run.session, reported(outcome(at_hand, result)))
        return await finish(store, session, report, **named)

    monkeypatch.setattr(SqlStore, "finish", finish_both)


Change = Callable[
    [SqlStore, Sequence[Firing], Ownership], Awaitable[tuple[Sequence[Firing], Ownership]]
]


def firing_as(change: Change) -> Break:
    """Fire schedules otherwise than planned; `change` tells what is fired, and as whose."""

    def take_away(monkeypatch: pytest.MonkeyPatch) -> None:
        fire = SqlStore.fire

        async def fire_changed(
            store: SqlStore, firings: Any, ownership: Any, room: Any = None
        ) -> Any:
            changed, owned = await change(store, firings, ownership)
            return await fire(store, changed, owned, room)

        monkeypatch.setattr(SqlStore, "fire", fire_changed)

    return take_away


async def as_if_current(
    store: SqlStore, firings: Sequence[Firing], ownership: Ownership
) -> tuple[Sequence[Firing], Ownership]:
    """Accept any firing, whoever owns the shard and wherever the schedule stands by now."""
    epochs = {shard.number: shard.epoch for shard in await store.shards() if shard.owner}
    due = await store.due_schedules(START + timedelta(days=1), 100, range(SHARD_COUNT))
    stands = {each.job_id: each for each in due}
    current = [
        replace(firing, claimed_next_at=stands[firing.job_id].next_at)
        for firing in firings
        if firing.job_id in stands
    ]
    return current, replace(ownership, epochs=epochs)


async def beside_the_ledger(
    store: SqlStore, firings: Sequence[Firing], ownership: Ownership
) -> tuple[Sequence[Firing], Ownership]:
    for each in firings:
        run = new_run_id(START)
        await store.submit([NewRun(run, each.job_id, 1, Trigger.MANUAL, "scheduler")])
    return firings, ownership


async def a_little_late(
    store: SqlStore, firings: Sequence[Firing], ownership: Ownership
) -> tuple[Sequence[Firing], Ownership]:
    late = [replace(firing, runs=[_late(run) for run in firing.runs]) for firing in firings]
    return late, ownership


def _late(run: Any) -> Any:
    return replace(run, due_at=run.due_at + timedelta(seconds=1))


def open_early(go_on: Any, facts: Any, now: Any) -> Any:
    is_begun = facts.wave and facts.pending_wave not in (None, facts.current_wave)
    return steps.Open(facts.pending_wave, True) if is_begun else go_on(facts, now)


def skip_rest(go_on: Any, facts: Any, now: Any) -> Any:
    return steps.SkipRest() if facts.pending_wave is not None else go_on(facts, now)


def lose_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = World.submit_cart

    async def submit_less(world: World, cart: Any, items: Any) -> None:
        await submit(world, replace(cart, items=cart.items - 1), items[1:])

    monkeypatch.setattr(World, "submit_cart", submit_less)


def lose_the_carts_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    all_carts = World.all_carts

    async def live(world: World) -> Any:
        return [cart for cart in await all_carts(world) if cart.state not in FINAL_CART_STATES]

    monkeypatch.setattr(World, "all_carts", live)


async def do_nothing(*_: Any, **__: Any) -> None: ...


BROKEN = "The same again"  # one promise or another, as luck will have it
RULES: Mapping[str, tuple[Break, str]] = {  # how each is taken away, and what the witness says
    "placement": (place_anything, "more than worker-. has"),
    "buckets have a top": (
        all_of(many_submissions, replaced(Bucket, "level_at", level_without_end)),
        "too fast",
    ),
    "keys are shared": (
        decided(keys, "shortage", lambda *_, **__: None),
        "is overdrawn|too fast",
    ),
    "gates of jobs": (
        decided(gates, "admit", lambda *_: gates.QUEUED),
        "overlap|max_concurrency",
    ),
    "the guardian's margin": (
        replaced(universe_worker, "guard_margin", lambda _: timedelta(seconds=-12)),
        BROKEN,
    ),
    "fences": (all_of(many_echoes, end_whatever_is_at_hand), BROKEN),
    "at most once": (
        all_of(many_faults, ending_as(delivery=Delivery.AT_LEAST_ONCE)),
        "at most once",
    ),
    "cancels": (ending_as(is_cancel_requested=False), "an attempt after a cancel"),
    "back-off": (decided(retry, "attempt_ended", retry_at_once), "before its back-off"),
    "leases": (
        all_of(
            reworded(
                "insert_session", (":now, :expires_at", ":now, :now + :lease / 4 + 0 * :expires_at")
            ),
            reworded("renew_session", (":now + lease", ":now + lease / 4")),
            reworded("resume_session", (":now + lease", ":now + lease / 4")),
            decided(lease, "is_silent", lambda *_: True),
        ),
        BROKEN,
    ),
    "a due time is fired once": (
        all_of(
            many_faults,
            replaced(HeldShards, "is_current", True),
            firing_as(as_if_current),
            reworded("owned_shards", ("owner = :server", ":server <> ''")),
            reworded("known_runs", ("WHERE", "WHERE 1 = 0 AND")),
        ),
        "already",
    ),
    "runs are asked for": (firing_as(beside_the_ledger), "a run that nobody asked for"),
    "due times": (firing_as(a_little_late), "answered what was not due"),
    "attempts are counted": (ending_as(failures=0), "too many failures"),
    "fences grow": (
        reworded("claim_runs", ("attempt = attempt + 1", "attempt = 1")),
        "a fence did not grow",
    ),
    "work that is on its way": (
        replaced(Desk, "never_arrived", lambda _, ours, beat: ours.difference(beat.held)),
        BROKEN,
    ),
    "work that came is counted": (claim_that_everything_came, BROKEN),
    "work is taken once": (
        replaced(Attempts, "_is_next", lambda *_: True),
        "one attempt began twice",
    ),
    "who lost workers goes alone": (
        all_of(many_faults, decided(retry, "goes_alone", lambda *_: False)),
        "more than worker-. has",
    ),
    "who goes alone takes all": (
        all_of(many_faults, decided(shape, "alone", lambda _, its: its)),
        "more than worker-. has",
    ),
    "waves wait for one another": (
        decided(steps, "_go_on", open_early),
        "two waves of a cart|earlier wave after a later|before its time",
    ),
    "waves soak": (replaced(steps, "_soak", lambda *_: None), "a wave before its time"),
    "budgets": (
        decided(budget, "is_breached", lambda *_: False),
        "too many had failed|a cart ended as|does not come to rest",
    ),
    "budgets are judged at once": (
        all_of(many_failing_carts, reworded("carts_of_runs", ("WHERE", "WHERE 1 = 0 AND"))),
        "too many had failed|does not come to rest",
    ),
    "max_parallel": (
        replaced(steps, "window", lambda facts: facts.items),
        "max_parallel passed",
    ),
    "strict": (
        all_of(
            many_failing_carts,
            replaced(steps, "window", lambda facts: facts.rules.max_parallel or facts.items),
        ),
        "strict was not strict",
    ),
    "what completed is not repeated": (
        reworded(
            "set_item_state",
            (":state,", "CASE WHEN :state = 'COMPLETED' THEN 'PENDING' ELSE :state END,"),
        ),
        "an item has two runs",
    ),
    "retries keep a wave open": (
        all_of(
            many_failing_carts,
            items_as({RunState.SCHEDULED: ItemState.COMPLETED}),
            reworded(
                "carts_due",
                (
                    "run.ended_at IS NOT NULL LIMIT 1",
                    "(run.ended_at IS NOT NULL OR run.state = 'SCHEDULED') LIMIT 1",
                ),
            ),
            reworded(
                "ended_items",
                ("run.ended_at\nFROM", "coalesce(run.ended_at, run.claimed_at) AS ended_at\nFROM"),
                (
                    "AND run.ended_at IS NOT NULL",
                    "AND (run.ended_at IS NOT NULL OR run.state = 'SCHEDULED' AND run.attempt > 0)",
                ),
            ),
        ),
        "two waves of a cart|earlier wave after a later|before its|not as its run|max_parallel",
    ),
    "an item is as its run": (
        items_as({RunState.COMPLETED: ItemState.CANCELLED}),
        "is not as its run",
    ),
    "ends of carts": (
        replaced(steps, "_end_of", lambda _: CartState.COMPLETED),
        "a cart ended as COMPLETED",
    ),
    "carts go on to their end": (
        decided(steps, "_go_on", skip_rest),
        "a cart ended as PARTIAL",
    ),
    "carts are cancelled": (
        decided(commands, "cancel", lambda *_: False),
        "a cart that was stopped went on|a cart ended as",
    ),
    "items stay": (lose_an_item, "other items than it had"),
    "carts stay": (lose_the_carts_that_ended, "acknowledged carts vanished"),
    "what is held stays": (
        all_of(many_holds, replaced(ActiveRun, "gives_way", True)),
        "a held run did not stay",
    ),
    "paused carts pause": (
        all_of(
            reworded("closed_carts", ("WHERE", "WHERE 1 = 0 AND")),
            reworded("block_runs_of_cart", ("WHERE", "WHERE 1 = 0 AND")),
        ),
        "a cart that was stopped went on",
    ),
    "holds": (
        all_of(
            replaced(SqlStore, "hold_run", do_nothing), replaced(SqlStore, "let_go", do_nothing)
        ),
        "a held run was claimed",
    ),
    "who fits is not let go": (
        decided(gates, "held", lambda *_: shape.without_worker("default", "", ["luck"])),
        "a held run was claimed|a held run did not stay",
    ),
    "an end is followed once": (
        all_of(
            reworded("forget_ends", ("WHERE", "WHERE 1 = 0 AND")),
            reworded("known_runs", ("WHERE", "WHERE 1 = 0 AND")),
        ),
        "already",
    ),
    "every end is followed": (
        reworded("leave_ends", ("WHERE", "WHERE 1 = 0 AND")),
        "does not come to rest",
    ),
    "only what completed is followed": (
        all_of(
            reworded("any_upstream_end", ("upstream_end LIMIT 1", "(SELECT 1 AS run_id)")),
            reworded(
                "upstream_ends",
                (
                    "FROM upstream_end",
                    "FROM (SELECT run_id, project, job, ended_at, state FROM upstream_end "
                    "UNION ALL SELECT id, project, job, ended_at, 'COMPLETED' FROM run "
                    "WHERE state = 'FAILED')",
                ),
            ),
        ),
        "follows what has not completed",
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("crowd", CROWDED)
def test_promises_hold_where_much_more_happens(crowd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise what is seen there would not prove that a rule is missed."""
    CROWDED[crowd](monkeypatch)

    explore(range(15))


@pytest.mark.parametrize("rule", RULES)
def test_the_witness_misses_no_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away, complaint = RULES[rule]
    take_away(monkeypatch)

    with pytest.raises(Violation, match=complaint):
        explore(range(100))
