"""Order of service with real processes: weights, newcomers and the urgent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import islice

import pytest

from rota.domain.order import OLDEST_EVERY
from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.evidence import Event, Evidence, Mark, of_event
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, runs_of

pytestmark = pytest.mark.timeout(120)

SLOTS = 10  # and processors
SECONDS = {"small": 0.3, "wide": 0.6}
SIZES = {"small": 1, "wide": 2}  # processors
WANTS = {"anna": ["small"], "ben": ["wide"], "cleo": ["small", "wide"]}
WEIGHTS = {"anna": 1, "ben": 1, "cleo": 2}
ROUNDS, ROUND = 15, 10  # how often a user asks for each job, and for how many runs
MEASURED = 200  # runs
TOLERANCE = 0.03
HOARD = 10_000
SERVED = ("CLAIMED", "PROCESSING", "COMPLETED")  # in the order in which a run passes them
A_MINUTE = timedelta(minutes=1)

AsUser = Callable[[RotaUp, str], Client]


@pytest.fixture
def as_user() -> Iterator[AsUser]:
    """Gives clients with a token of that name."""
    with ExitStack() as until:

        def connect(rota: RotaUp, name: str) -> Client:
            secret = rota.client.create_token(name, "operator").secret
            return until.enter_context(Client(rota.client.server.url, secret))

        yield connect


def served_before(client: Client, run: Run) -> set[str]:
    """Runs that a worker got while this one was queued."""
    own = eventually(lambda: claimed(client, run))
    assert own.queued_at
    assert own.claimed_at
    return {
        other.id
        for state in SERVED
        for other in runs_of(client, state=state)
        if other.claimed_at and own.queued_at < other.claimed_at < own.claimed_at
    }


def claimed(client: Client, run: Run) -> Run:
    found = client.get_run(run.id)
    assert found.claimed_at
    return found


def parts(marks: Sequence[Mark], owners: Mapping[str, str]) -> dict[str, float]:
    """Which part of all processor-seconds the runs of each user had, until the last mark."""
    ends = {mark.run: mark.at for mark in of_event(marks, Event.END)}
    used = dict.fromkeys(WEIGHTS, 0.0)
    for start in of_event(marks, Event.START):
        lasted = ends.get(start.run, marks[-1].at) - start.at
        used[owners[start.run]] += SIZES[start.job] * lasted
    return {user: seconds / sum(used.values()) for user, seconds in used.items()}


@pytest.mark.campaign
class TestWeights:
    def test_resource_time_goes_by_weight_and_a_newcomer_is_served_next(
        self, up: Up, evidence: Evidence, as_user: AsUser
    ) -> None:
        rota = up(slots=str(SLOTS), resources=f"cpu={SLOTS}", worker_name="only")
        apply(
            rota.client,
            *(
                job(name, evidence.script(f"sleep {SECONDS[name]}"), resources={"cpu": size})
                for name, size in SIZES.items()
            ),
        )
        rota.client.drain_worker("only")
        owners: dict[str, str] = {}
        for user, weight in WEIGHTS.items():
            rota.client.put_share(f"default/{user}", weight)
            owners |= dict.fromkeys(backlog(as_user(rota, user), WANTS[user]), user)

        rota.client.resume_worker("only")
        marks = eventually(lambda: measured(evidence), A_MINUTE)
        rota.client.drain_worker("only")
        newcomer = as_user(rota, "dora").trigger("small")
        rota.client.resume_worker("only")

        entitled = {user: weight / sum(WEIGHTS.values()) for user, weight in WEIGHTS.items()}
        assert parts(marks, owners) == pytest.approx(entitled, abs=TOLERANCE)
        # But for the run that a place is kept for, one that is the oldest of all, and one of the
        # line with which it stands level.
        assert len(served_before(rota.client, newcomer)) <= 3


def backlog(client: Client, jobs: Sequence[str]) -> list[str]:
    """The ids of many new runs, some of each job by turns."""
    asked = [client.trigger_many(name, [{}] * ROUND) for _ in range(ROUNDS) for name in jobs]
    return [run for batch in asked for run in batch.runs]


def measured(evidence: Evidence) -> list[Mark]:
    """What was written until enough runs had ended."""
    marks = evidence.marks()
    assert len(of_event(marks, Event.END)) >= MEASURED
    return marks


class TestHoard:
    def test_thousands_of_one_user_delay_neither_another_nor_the_urgent_nor_the_patient(
        self, up: Up, as_user: AsUser
    ) -> None:
        rota = up(slots=str(SLOTS), worker_name="only")
        apply(rota.client, job("short", "sleep 0.1"))
        rota.client.drain_worker("only")
        patient = as_user(rota, "ben").trigger("short", priority=0)
        greedy = as_user(rota, "anna")
        greedy.trigger_many("short", [{}] * HOARD)
        rota.client.resume_worker("only")

        first = as_user(rota, "cleo").trigger("short")
        urgent = greedy.trigger("short", priority=9)

        for run in (first, urgent):
            assert len(served_before(rota.client, run)) <= SLOTS
        assert len(served_before(rota.client, patient)) <= OLDEST_EVERY
        waiting = rota.client.each(Client.list_runs(state="QUEUED", limit=1_000))
        assert sum(1 for _ in islice(waiting, HOARD // 2)) == HOARD // 2
