"""Random histories of people, schedulers, workers and reapers against a small model of the store.

More of them: `pytest --hypothesis-profile=explore tests/properties/test_store_machine.py`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rota.domain.backfill import Backfill
from rota.domain.errors import Conflict
from rota.domain.gates import SLOT_STATES
from rota.domain.ids import BackfillId, JobId, RunId, SessionId
from rota.domain.run import AttemptResult, Run, Trigger
from rota.domain.spec import Delivery, Overlap, Retry
from rota.domain.states import (
    LEASED_STATES,
    TRANSITIONS,
    WAITING_STATES,
    RunState,
    is_final,
    state_after,
)
from rota.ports.records import Event, Finished, RunQuery
from rota.ports.store import Store
from rota.ports.work import Fence
from rota.store.postgres.opening import open_postgres
from testkit.builders import Scene
from testkit.clock import FakeTicker
from testkit.new_stores import open_new_sqlite
from testkit.servers.postgres import PostgresServer, server_folder

T = TypeVar("T")
LEASE = timedelta(seconds=30)
PERIOD = timedelta(seconds=10)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
RETRY = Retry(attempts=3, delay=timedelta(seconds=5))
JOBS: dict[str, dict[str, Any]] = {
    "free": {"overlap": Overlap.ALLOW, "retry": RETRY},
    "limited": {"max_concurrency": 2, "retry": RETRY, "max_losses": 1},
    "once": {"delivery": Delivery.AT_MOST_ONCE},
    "newest": {"overlap": Overlap.QUEUE_ONE, "max_concurrency": 1, "retry": RETRY},
    "every": {"overlap": Overlap.QUEUE_ALL},
    "latest": {"overlap": Overlap.CANCEL_PREVIOUS, "retry": RETRY},
    "rare": {"overlap": Overlap.SKIP, "retry": RETRY},
    "follower": {"after": ("free",)},
    "report": {"after": ("free",), "overlap": Overlap.QUEUE_ONE},
}
SCHEDULED = ("newest", "every", "latest", "rare", "report")
STEPS = {(before, after) for (before, _), after in TRANSITIONS.items()}
NAMES = st.sampled_from(sorted(JOBS))
PICKS = st.integers(0, 1_000)


@dataclass
class Presence:
    """What the model knows of a session."""

    slots: int
    expires_at: int
    beats: int = 0
    alive: bool = True


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeTicker()
        self.jobs: dict[str, JobId] = {}
        self.submitted: set[str] = set()
        self.backfills: dict[BackfillId, Backfill] = {}
        self.sessions: dict[SessionId, Presence] = {}
        self.held: dict[Fence, SessionId] = {}
        self.ended: dict[Fence, SessionId] = {}  # by a report that was accepted
        self.lost: dict[Fence, SessionId] = {}
        self.attempts: Counter[str] = Counter()
        self.folded: dict[str, RunState] = {}
        self.finals: dict[str, Run] = {}
        self.on_hold: dict[str, None] = {}
        self.last_event = 0

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    @initialize()
    def open(self) -> None:
        self.scene = Scene(self.run(self.open_store()), self.clock)
        for name, rules in JOBS.items():
            next_at = self.clock.instant + PERIOD if name in SCHEDULED else None
            self.jobs[name] = self.run(self.scene.job(name, next_at=next_at, **rules))

    async def open_store(self) -> Store:
        return await open_new_sqlite(Path(self.folder.name) / "rota.db", clock=self.clock)

    # --- people

    @rule(name=NAMES, count=st.integers(1, 3))
    def submit(self, name: str, count: int) -> None:
        self.submitted.update(self.run(self.scene.trigger(self.jobs[name], count)))

    @rule(name=NAMES, seconds=st.integers(1, 40))
    def submit_for_later(self, name: str, seconds: int) -> None:
        at = self.clock.instant + timedelta(seconds=seconds)
        self.submitted.update(self.run(self.scene.trigger(self.jobs[name], at=at)))

    @rule(name=NAMES, count=st.integers(1, 5), max_parallel=st.integers(1, 3))
    def backfill(self, name: str, count: int, max_parallel: int) -> None:
        due = [LONG_AGO + (len(self.submitted) + n) * PERIOD for n in range(count)]
        made = self.run(
            self.scene.backfill(self.jobs[name], due, max_parallel=max_parallel)
        ).backfill
        self.backfills[made.id] = made
        self.submitted.update(run.id for run in self.run(self.scene.backfilled(made.id)))

    @precondition(lambda self: self.folded)
    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        run = self._pick(list(self.folded), pick)

        concerned = self.run(self.scene.store.cancel([run], actor="user"))

        before = self.folded[run]
        assert bool(concerned) == (not is_final(before) and before is not RunState.UNKNOWN)

    @rule(name=NAMES)
    def pause(self, name: str) -> None:
        job = self.run(self.scene.show_job(self.jobs[name]))
        self.run(self.scene.move("paused", job.id, next_at=job.next_at))

    @rule(name=NAMES)
    def resume(self, name: str) -> None:
        job = self.run(self.scene.show_job(self.jobs[name]))
        self.run(self.scene.move("resumed", job.id, next_at=job.next_at))

    @precondition(lambda self: self.folded)
    @rule(pick=PICKS)
    def hold(self, pick: int) -> None:
        run = self._pick(list(self.folded), pick)
        is_waiting = self.folded[run] in WAITING_STATES

        assert self._is_done(self.scene.store.hold_run(run, actor="user")) == is_waiting
        if is_waiting:
            self.on_hold[run] = None

    @precondition(lambda self: self.folded)
    @rule(pick=PICKS)
    def let_go(self, pick: int) -> None:
        run = self._pick([*self.on_hold, *self.folded], pick)
        is_held = run in self.on_hold and self.folded[run] is RunState.BLOCKED

        assert self._is_done(self.scene.store.let_go(run, actor="user")) == is_held
        self.on_hold.pop(run, None)

    @precondition(lambda self: self.folded)
    @rule(pick=PICKS, priority=st.integers(0, 9))
    def prioritise(self, pick: int, priority: int) -> None:
        run = self._pick(list(self.folded), pick)
        is_waiting = self.folded[run] in WAITING_STATES

        done = self._is_done(self.scene.store.set_priority(run, priority, actor="user"))

        assert done == is_waiting

    def _is_done(self, steering: Coroutine[Any, Any, object]) -> bool:
        try:
            self.run(steering)
        except Conflict:
            return False
        return True

    @precondition(lambda self: RunState.UNKNOWN in self.folded.values())
    @rule(
        state=st.sampled_from([RunState.COMPLETED, RunState.FAILED, RunState.SCHEDULED]), pick=PICKS
    )
    def resolve(self, state: RunState, pick: int) -> None:
        unknown = [run for run, known in self.folded.items() if known is RunState.UNKNOWN]
        self.run(self.scene.store.resolve(self._pick(unknown, pick), state, actor="user"))

    # --- time

    @rule(seconds=st.integers(1, 20))
    def tick(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.run(self.scene.release())

    @rule(name=st.sampled_from(SCHEDULED), twice=st.booleans())
    def fire(self, name: str, twice: bool) -> None:
        job = self.run(self.scene.show_job(self.jobs[name]))
        assert job.next_at is not None
        is_due = job.next_at <= self.clock.instant

        fired = self.run(self.scene.fire(job.id, every=PERIOD))

        assert bool(fired.accepted) == is_due
        if twice and is_due:
            again = self.run(self.scene.fire(job.id, every=PERIOD))
            assert bool(again.accepted) == (job.next_at + PERIOD <= self.clock.instant)

    @rule(limit=st.integers(1, 5))
    def follow(self, limit: int) -> None:
        while self.run(self.scene.store.follow_ends(limit)):
            pass
        runs = self.run(self.scene.store.runs(RunQuery(limit=10_000)))
        completed = {r.id for r in runs if r.job == "free" and r.state is RunState.COMPLETED}
        assert Counter(run.follows for run in runs if run.follows) == Counter(completed)

    # --- workers

    @rule(slots=st.integers(1, 4))
    def register(self, slots: int) -> None:
        session = self.run(self.scene.worker("worker", slots=slots, lease=LEASE))
        self.sessions[session] = Presence(slots, self._lease_end())

    @precondition(lambda self: self.sessions)
    @rule(pick=PICKS, slots=st.integers(1, 5))
    def claim(self, pick: int, slots: int) -> None:
        session = self._pick(list(self.sessions), pick)
        presence = self.sessions[session]
        has_lease = presence.alive and presence.expires_at > self.clock.now()
        room = presence.slots - Counter(self.held.values())[session]

        works = self.run(self.scene.claim(session, slots))

        assert len(works) <= (min(slots, room) if has_lease else 0)
        for work in works:
            assert self.folded[work.run] is RunState.QUEUED
            assert work.run not in self.on_hold
            assert work.attempt == self.attempts[work.run] + 1
            self.attempts[work.run] = work.attempt
            self.held[work.fence] = session

    @precondition(lambda self: self.held)
    @rule(pick=PICKS)
    def start(self, pick: int) -> None:
        fence = self._pick(list(self.held), pick)
        self.run(self.scene.start(self.held[fence], [fence]))

    @precondition(lambda self: self.held)
    @rule(pick=PICKS, result=st.sampled_from(AttemptResult), has_steps=st.booleans())
    def finish(self, pick: int, result: AttemptResult, has_steps: bool) -> None:
        fence = self._pick(list(self.held), pick)
        session = self.held.pop(fence)

        finished = self.run(
            self.scene.finish(session, [fence], result, message="told" if has_steps else "")
        )

        assert finished == Finished()
        outcomes = self.lost if result is AttemptResult.LOST else self.ended
        outcomes[fence] = session

    @precondition(lambda self: self.ended or self.lost)
    @rule(pick=PICKS, result=st.sampled_from(AttemptResult))
    def repeat_an_old_report(self, pick: int, result: AttemptResult) -> None:
        fence = self._pick([*self.ended, *self.lost], pick)
        session = {**self.ended, **self.lost}[fence]

        finished = self.run(self.scene.finish(session, [fence], result))

        assert finished.refused == ((fence,) if fence in self.lost else ())

    @precondition(lambda self: self.held and len(self.sessions) > 1)
    @rule(pick=PICKS, thief=PICKS, result=st.sampled_from(AttemptResult))
    def report_what_another_holds(self, pick: int, thief: int, result: AttemptResult) -> None:
        fence = self._pick(list(self.held), pick)
        others = [session for session in self.sessions if session != self.held[fence]]

        finished = self.run(self.scene.finish(self._pick(others, thief), [fence], result))

        assert finished.refused == (fence,)

    @precondition(lambda self: self.sessions)
    @rule(pick=PICKS)
    def renew(self, pick: int) -> None:
        session = self._pick(list(self.sessions), pick)
        presence = self.sessions[session]

        renewal = self.run(self.scene.store.renew(session, stopping=False))

        assert renewal.alive == presence.alive
        if presence.alive:
            presence.beats += 1
            presence.expires_at = self._lease_end()
            assert set(renewal.held) == {f for f, holder in self.held.items() if holder == session}

    @rule(has_seen_beats=st.booleans())
    def reap(self, has_seen_beats: bool) -> None:
        seen = {s: p.beats if has_seen_beats else p.beats - 1 for s, p in self.sessions.items()}
        expired = {
            session
            for session, presence in self.sessions.items()
            if has_seen_beats and presence.alive and presence.expires_at < self.clock.now()
        }

        gone = self.run(self.scene.store.reap(seen))

        assert gone == expired
        for session in gone:
            self._lose(session)

    @precondition(lambda self: self.sessions)
    @rule(pick=PICKS)
    def say_goodbye(self, pick: int) -> None:
        session = self._pick(list(self.sessions), pick)
        self.run(self.scene.store.end_session(session))
        self._lose(session)

    # --- what must hold after each step

    @invariant()
    def everything_holds(self) -> None:
        if not self.jobs:
            return
        self._fold(self.run(self.scene.store.events(self.last_event, 10_000)))
        runs = {r.id: r for r in self.run(self.scene.store.runs(RunQuery(limit=10_000)))}
        assert self.submitted <= runs.keys()
        assert {run.id: run.state for run in runs.values()} == self.folded
        self._attempts_are_held_by_one(runs)
        self._final_is_final(runs)
        self._limits_hold(runs)
        assert self.run(self.scene.store.release_forgotten(1_000)) == 0

    def _fold(self, events: list[Event]) -> None:
        """Every step that was recorded is one of the table."""
        for event in events:
            self.last_event = event.seq
            state = state_after(event)
            for run in event.ids if state else ():
                assert state is not None
                before = self.folded.get(run)
                assert before is None or (before, state) in STEPS, (run, before, state)
                self.folded[run] = state

    def _attempts_are_held_by_one(self, runs: dict[Any, Run]) -> None:
        live = {
            Fence(run.id, run.attempt): run.session
            for run in runs.values()
            if run.state in LEASED_STATES
        }
        assert live == self.held
        for session, count in Counter(self.held.values()).items():
            assert count <= self.sessions[session].slots

    def _final_is_final(self, runs: dict[Any, Run]) -> None:
        for run in runs.values():
            assert self.finals.get(run.id, run) == run
            if is_final(run.state):
                assert run.ended_at is not None
                self.finals[run.id] = run

    def _limits_hold(self, runs: dict[Any, Run]) -> None:
        slots: Counter[str] = Counter()
        exclusive: Counter[str] = Counter()
        for run in runs.values():
            assert bool(run.reasons) == (run.state is RunState.BLOCKED)
            assert run.losses <= JOBS[run.job].get("max_losses", 3) + 1
            slots[run.job] += run.state in SLOT_STATES
            exclusive[run.job] += run.state in SLOT_STATES and run.trigger is Trigger.SCHEDULE
        in_flight = Counter(run.backfill for run in runs.values() if run.state in SLOT_STATES)
        for backfill in self.backfills.values():
            assert in_flight[backfill.id] <= backfill.max_parallel
        for name, rules in JOBS.items():
            assert slots[name] <= rules.get("max_concurrency", slots[name])
            assert exclusive[name] <= 1

    def teardown(self) -> None:
        if self.jobs:
            self._drain()
            self.run(self.scene.store.close())
        self.runner.close()
        self.folder.cleanup()

    def _drain(self) -> None:
        """With a healthy worker and nobody in the way, everything comes to an end."""
        for name in self.jobs:
            self.resume(name)
        for held in self.on_hold:
            self._is_done(self.scene.store.let_go(RunId(held), actor="user"))
        self.submit("free", 1)  # due runs may wait for it
        for session in self.sessions:
            self.run(self.scene.store.end_session(session))
        worker = self.run(self.scene.worker("last", slots=100))
        for _ in range(200):
            self.clock.advance(timedelta(seconds=10))
            self.run(self.scene.release())
            for run in self.run(self.scene.store.runs(RunQuery(states=[RunState.UNKNOWN]))):
                self.run(self.scene.store.resolve(run.id, RunState.FAILED, actor="user"))
            self.run(self.scene.finish(worker, self.run(self.scene.claim(worker))))
            self.follow(100)
            if not self.run(self.scene.store.counts()).runs:
                return
        raise AssertionError(f"stuck: {self.run(self.scene.store.counts()).runs}")

    def _lose(self, session: SessionId) -> None:
        self.sessions[session].alive = False
        for fence in [fence for fence, holder in self.held.items() if holder == session]:
            self.lost[fence] = self.held.pop(fence)

    def _lease_end(self) -> int:
        return self.clock.now() + LEASE // timedelta(microseconds=1)

    @staticmethod
    def _pick(choices: list[Any], pick: int) -> Any:
        """One of them, by its place: ids are random, and a history must be the same again."""
        return choices[pick % len(choices)]


def test_random_histories_agree_with_the_model() -> None:
    play(StoreMachine, histories=settings().max_examples // 4, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_long_random_histories_agree_with_the_model() -> None:
    play(StoreMachine, histories=settings().max_examples // 2, steps=120)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_random_histories_in_postgresql_agree_with_the_model() -> None:
    with server_folder() as folder, PostgresServer(folder / "server") as server:

        class PostgresMachine(StoreMachine):
            async def open_store(self) -> Store:
                address = server.address(await server.create())
                return await open_postgres(address, clock=self.clock)

        play(PostgresMachine, histories=settings().max_examples // 8, steps=40)


def play(machine: type[StoreMachine], *, histories: int, steps: int) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=histories, stateful_step_count=steps)
    )
