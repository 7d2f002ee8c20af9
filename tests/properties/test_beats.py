"""Beats: whichever come twice or late, what a worker holds or is going to hold is never lost."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rota.domain.ids import SessionId
from rota.ports.records import Session
from rota.ports.work import Beat, Dispatch, Fence, Work, WorkBatch
from rota.server.dispatcher.desk import Desk
from testkit.clock import START

SLOTS = 6
SESSION = Session(
    id=SessionId("w_1"),
    worker="worker",
    pool="default",
    slots=SLOTS,
    labels={},
    functions=(),
    guard_mode="",
    version="",
    lease=timedelta(seconds=30),
    registered_at=START,
    expires_at=START,
    beats=0,
    alive=True,
    stopping=False,
)


class Conversation(RuleBasedStateMachine):
    """A desk, a worker, and the stream between them."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(SESSION)
        self.orders = 0
        self.runs = 0
        self.ours: set[Fence] = set()  # by the store's book
        self.stream: deque[Dispatch] = deque()
        self.held: set[Fence] = set()  # by the worker
        self.received = 0
        self.beats = [Beat(received=0)]

    @precondition(lambda self: self.desk.free() > 0)
    @rule(count=st.integers(1, 3))
    def claim(self, count: int) -> None:
        names = [f"r_{self.runs + n}" for n in range(min(count, self.desk.free()))]
        self.runs += len(names)
        works = [Work(name, 1, "j_1", 1, due_at=0) for name in names]
        with self.desk.claiming():
            self.ours.update(work.fence for work in works)
            given = self.desk.give(WorkBatch.of(works), count)
            self.check_all_beats()
            self.desk.send(given)
        self.orders += 1

    @rule()
    def lose_the_answer_of_a_claim(self) -> None:
        """Nothing is ordered: whichever beat comes next finds it out."""
        fence = Fence("r_mislaid", 1)
        with self.desk.claiming():
            self.ours.add(fence)
            self.check_all_beats()

        assert self.desk.never_arrived(frozenset(self.ours), self.beats[0]) == {fence}
        self.ours.discard(fence)

    @precondition(lambda self: self.orders)
    @rule()
    def send(self) -> None:
        self.orders -= 1
        order = asyncio.run(self.desk.next_order())
        assert isinstance(order, Dispatch)
        self.stream.append(order)

    @precondition(lambda self: self.stream)
    @rule()
    def arrive(self) -> None:
        dispatch = self.stream.popleft()
        assert dispatch.first == self.received + 1
        self.received += len(dispatch.batch)
        self.held.update(dispatch.batch.fences())

    @precondition(lambda self: self.held)
    @rule()
    def end(self) -> None:
        fence = min(self.held, key=lambda fence: fence.run)
        self.ours.discard(fence)
        self.desk.drop([fence])
        self.held.discard(fence)

    @rule(stopping=st.booleans())
    def beat(self, stopping: bool) -> None:
        self.beats.append(Beat(tuple(self.held), stopping, self.received))

    @precondition(lambda self: self.held)
    @rule()
    def mislay(self) -> None:
        """The worker has a fault, and the next beat that it sends tells."""
        fence = min(self.held, key=lambda fence: fence.run)
        self.held.discard(fence)
        fresh = Beat(tuple(self.held), received=self.received)

        assert self.desk.never_arrived(frozenset(self.ours), fresh) == {fence}
        self.ours.discard(fence)
        self.desk.drop([fence])

    @invariant()
    def check_all_beats(self) -> None:
        """Every beat that was ever sent may come now."""
        for beat in self.beats:
            assert self.desk.never_arrived(frozenset(self.ours), beat) == frozenset()


def test_no_beat_takes_from_a_worker_what_it_holds_or_is_about_to_get() -> None:
    run_state_machine_as_test(Conversation, settings=settings(stateful_step_count=30))
