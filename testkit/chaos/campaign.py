"""Campaign: work and faults for a while, then recovery, rest and the verdict."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import TypeVar

from rota.sdk.answers import Event, LedgerEntry, Page, Run, RunDetail
from rota.sdk.client import Client
from rota.sdk.exchange import Call
from testkit.chaos.bounds import Bound, Stopwatch
from testkit.chaos.client import AWAY, AnyServer, Users
from testkit.chaos.history import Dump, Times
from testkit.chaos.judge import SERVICE_WITHIN, Case, Violation, judge
from testkit.chaos.nemesis import Arsenal, Nemesis
from testkit.chaos.network import ProxiedCluster
from testkit.chaos.tampering import Stranger
from testkit.chaos.workload import Promise, job_file, measured, on_demand, poison, scheduled
from testkit.cluster import Size
from testkit.evidence import Evidence
from testkit.processes import processes_of
from testkit.waiting import boottime, eventually

T = TypeVar("T")

LEASE = timedelta(seconds=6)
_SETTINGS = {"lease": f"{LEASE.seconds}s", "stop_grace": "5s"}
_CALM = timedelta(seconds=15)  # of work without faults, for the judge to see that it goes well
_REST = timedelta(minutes=3)  # for everything to come to an end
_PAGE = 1_000
_LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """Minimum duration of the faults, and the seed of all random choices.

    `allowance` is what each bound may be exceeded by, on a machine with little to spare.
    """

    faults_for: timedelta
    seed: int
    size: Size = Size()
    allowance: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Verdict:
    case: Case
    bounds: list[Bound]
    violations: list[Violation]


def run_campaign(plan: Plan, folder: Path, tell: Callable[[str], None]) -> Verdict:
    """Run a campaign, and `tell` what happens; every user must be able to enter `folder`."""
    evidence = Evidence(folder / "evidence")
    with ProxiedCluster(folder / "cluster", plan.size, _SETTINGS) as cluster:
        cluster.wait_until_shared()
        with closing(_Campaign(cluster, evidence, plan, tell)) as campaign:
            bounds = campaign.measure()
            case = campaign.run()
    return Verdict(case, bounds, [*exceeded(bounds, plan.allowance), *judge(case)])


def exceeded(bounds: Sequence[Bound], allowance: timedelta) -> Iterator[Violation]:
    """Yield what took longer than promised, and than the allowance beyond that."""
    for each in bounds:
        if each.measured > each.promised + allowance:
            yield Violation("bound", each.name, f"{each.measured.total_seconds():.1f} s")


class _Campaign:
    def __init__(
        self,
        cluster: ProxiedCluster,
        evidence: Evidence,
        plan: Plan,
        tell: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._evidence = evidence
        self._plan = plan
        self._tell = tell
        self._observer = self._connect()
        self._stranger = Stranger(cluster)
        self._scheduled = scheduled(evidence)
        self._on_demand = on_demand(evidence)

    @property
    def _promises(self) -> list[Promise]:
        return [*self._scheduled, *self._on_demand, *measured(self._evidence), poison()]

    def close(self) -> None:
        self._stranger.close()
        self._observer.close()

    def measure(self) -> list[Bound]:
        """Measure what one fault at a time costs, before they come together."""
        self._observer.send(Client.apply(job_file(self._promises)))
        canaries = [promise.job for promise in self._scheduled if promise.catches_up]
        watch = Stopwatch(self._cluster, self._evidence, self._observer, canaries, LEASE)
        return watch.measure()

    def run(self) -> Case:
        random = Random(self._plan.seed)  # noqa: S311 - the same seed shall give the same walk
        users = Users(self._connect, self._on_demand, Random(random.random()))  # noqa: S311
        arsenal = Arsenal(self._cluster, self._observer, self._stranger, random)
        nemesis = Nemesis(arsenal.deck(), random, self._tell)
        with users:
            end = boottime() + self._plan.faults_for.total_seconds()
            nemesis.walk(end, list(self._cluster.nodes))
            healed = boottime()
            self._tell("healed")
            self._keep_working(healed)
            users.stop_submitting()
            stopped = self._come_to_rest()
        times = Times(self._epoch(), healed, stopped)
        return self._case(users, nemesis, times)

    def _connect(self) -> AnyServer:
        urls = [server.url for server in self._cluster.servers]
        return AnyServer.of(urls, self._cluster.token)

    def _keep_working(self, healed: float) -> None:
        end = healed + (SERVICE_WITHIN + _CALM).total_seconds()
        threading.Event().wait(max(0.0, end - boottime()))

    def _come_to_rest(self) -> float:
        """Wait until nothing is due any more and all runs have ended; return when that began."""
        unscheduled = [promise.unscheduled() for promise in self._promises]
        self._observer.send(Client.apply(job_file(unscheduled)))
        stopped = boottime()
        self._tell("nothing is due any more")
        with suppress(AssertionError):  # the judge will say what is left
            eventually(self._is_at_rest, _REST)
        return stopped

    def _is_at_rest(self) -> bool:
        try:
            going = [run for run in self._each(Client.list_runs(active=True)) if not run.is_settled]
            return not going and not self._pending_output()
        except AWAY:
            return False

    def _pending_output(self) -> bool:
        """Return whether recent output is still on its worker."""
        printed = [promise.job for promise in self._on_demand if promise.prints]
        runs = [run for job in printed for run in self._observer.send(Client.list_runs(job=job))]
        details = [self._observer.send(Client.get_run(run.id)) for run in runs[:_LOOKED_AT]]
        return any(it.output.state == "pending" for run in details for it in run.attempts)

    def _epoch(self) -> datetime:
        return self._observer.next().now() - timedelta(seconds=boottime())

    def _case(self, users: Users, nemesis: Nemesis, times: Times) -> Case:
        ended = [node.name for node in self._cluster.nodes if not node.is_running]
        return Case(
            self._promises,
            self._evidence.marks(),
            users.log,
            self._dump(),
            times,
            nemesis.log,
            survivors=[str(pid) for pid in processes_of(self._evidence.path)],
            ended_nodes=[*nemesis.ended, *ended],
        )

    def _dump(self) -> Dump:
        runs = {run.id: self._detail(run) for run in self._each(Client.list_runs(limit=_PAGE))}
        prints = {promise.job for promise in self._on_demand if promise.prints}
        return Dump(
            runs,
            {promise.job: self._ledger(promise.job) for promise in self._scheduled},
            {run.id: self._digest(run) for run in runs.values() if run.job in prints},
            Counter(event.type.removeprefix("rota.") for event in self._events()),
        )

    def _detail(self, run: Run) -> RunDetail:
        return self._observer.send(Client.get_run(run.id))

    def _ledger(self, job: str) -> list[LedgerEntry]:
        entries = self._each(Client.get_ledger(job, limit=_PAGE))
        return sorted(entries, key=lambda entry: entry.first)

    def _digest(self, run: RunDetail) -> str:
        if not run.attempts or run.attempts[-1].output.state != "stored":
            return ""
        return hashlib.sha256(self._observer.send(Client.raw_log(run.id))).hexdigest()

    def _events(self) -> Iterator[Event]:
        after = "0"
        while page := self._observer.send(
            Client.list_events(after=after, limit=_PAGE, project="*")
        ).items:
            yield from page
            after = page[-1].id

    def _each(self, call: Call[Page[T]]) -> Iterator[T]:
        while True:
            page = self._observer.send(call)
            yield from page.items
            if page.next_cursor is None:
                return
            call = call.with_query(cursor=page.next_cursor)
