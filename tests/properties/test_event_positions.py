"""Positions of events on PostgreSQL, on a model of its transactions: any interleaving is possible.

The rules of the model are those of `insert_event` and `select_events`; decision 20 tells why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

RUNS, AT_ONCE = 4, 4
# Most transactions are open beside others, or nothing could come in another order.
WEIGHTS = {"begin": 5, "change": 6, "write": 4, "commit": 2, "abort": 1, "follow": 4}
ACTIONS = st.sampled_from([action for action, weight in WEIGHTS.items() for _ in range(weight)])
SCHEDULES = st.lists(
    st.tuples(ACTIONS, st.integers(0, AT_ONCE - 1), st.integers(0, RUNS - 1)),
    min_size=100,
    max_size=200,
)


@dataclass(frozen=True, slots=True)
class Written:
    """An event of a run, the step-th of its life."""

    position: int
    tick: int
    run: int
    step: int


@dataclass(slots=True, eq=False)
class Transaction:
    """Has its number from its first write, and locks on runs until it ends."""

    number: int
    runs: set[int] = field(default_factory=set)
    changing: tuple[int, int] | None = None  # run and tick of a statement that drew nothing yet
    events: list[Written] = field(default_factory=list)


@dataclass(slots=True)
class Database:
    last_number: int = 0
    last_ended: int = 0
    last_drawn: int = 0
    open: list[Transaction] = field(default_factory=list)
    steps: list[int] = field(default_factory=lambda: [0] * RUNS)
    committed: list[Written] = field(default_factory=list)
    heard: list[Written] = field(default_factory=list)  # by a follower

    def act(self, action: str, pick: int, run: int) -> None:
        """Do what is possible just then, and otherwise nothing."""
        if action == "follow":
            self.follow(limit=pick + 1)
        elif action == "begin" and len(self.open) < AT_ONCE:
            self.last_number += 1
            self.open.append(Transaction(self.last_number))
        elif action != "begin" and self.open:
            transaction = self.open[pick % len(self.open)]
            if action == "change":
                self.change(transaction, run)
            elif action == "write":
                self.write(transaction)
            else:
                self.end(transaction, commits=action == "commit")

    def change(self, transaction: Transaction, run: int) -> None:
        """Lock a run that nobody else has; then begin the statement that records the change."""
        others = [each for each in self.open if each is not transaction]
        if transaction.changing is None and all(run not in each.runs for each in others):
            transaction.runs.add(run)
            tick = max(transaction.number, self.last_ended)
            transaction.changing = (run, tick)

    def write(self, transaction: Transaction) -> None:
        """Draw the number of an event, some time after its statement began."""
        if transaction.changing is None:
            return
        (run, tick), transaction.changing = transaction.changing, None
        self.last_drawn += 1
        step = self.steps[run] + sum(event.run == run for event in transaction.events) + 1
        position = (tick << 16) + self.last_drawn
        transaction.events.append(Written(position, tick, run, step))

    def end(self, transaction: Transaction, *, commits: bool) -> None:
        self.write(transaction)  # if a statement is under way
        self.open.remove(transaction)
        self.last_ended = max(self.last_ended, transaction.number)
        if commits:
            self.committed += transaction.events
            for event in transaction.events:
                self.steps[event.run] = event.step

    def follow(self, limit: int) -> None:
        oldest = min((each.number for each in self.open), default=self.last_ended + 1)
        after = self.heard[-1].position if self.heard else 0
        passed = [e for e in self.committed if e.tick < oldest and e.position > after]
        self.heard += sorted(passed, key=attrgetter("position"))[:limit]


@given(SCHEDULES)
def test_a_follower_hears_every_step_once_and_in_order_whatever_goes_on_at_once(
    schedule: list[tuple[str, int, int]],
) -> None:
    database = Database()

    for action, pick, run in schedule:
        database.act(action, pick, run)
    for transaction in list(database.open):
        database.end(transaction, commits=True)
    database.follow(limit=len(database.committed))

    assert len(database.heard) == len(database.committed)
    for run in range(RUNS):
        steps = [event.step for event in database.heard if event.run == run]
        assert steps == list(range(1, database.steps[run] + 1))
