"""Injects faults into the cluster, again and again, each time another kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random

from testkit.chaos.backend_faults import (
    BLOBS,
    HOUR,
    QUEUE,
    STORE,
    BrokenLink,
    CrashedStore,
    KilledObjectStore,
    KilledQueue,
    RollingQueue,
    TerminatedConnections,
    WrongWallClock,
    read_stored_output,
    unused,
)
from testkit.chaos.client import AnyServer
from testkit.chaos.faults import (
    WHOLE_WORKER,
    Fault,
    KilledProcess,
    KilledServer,
    StoppedProcesses,
    StoppedServer,
    UsurpedServer,
    restarted_server,
    restarted_worker,
    whole_tree,
)
from testkit.chaos.history import Injection
from testkit.chaos.network import Link, ProxiedCluster
from testkit.chaos.tampering import PoisonRun, ReplayedReport, Stranger
from testkit.nodes import Node, ServerNode, WorkerNode
from testkit.proxy import Proxy
from testkit.waiting import boottime

_LOOK_SECONDS = 0.1
_ALONE = 0.25  # part of the faults that come alone
_MAX_UNFELT = 3  # times that a kind is tried until somebody feels it
_TRIES = 10  # to find two that do not touch the same

_PRINTING = "printing"

# A line to what is away cannot be felt to be cut. Nobody reads blobs without the store.
_BEHIND = {
    Link.SERVERS: (),
    Link.STORE: (STORE,),
    Link.QUEUE: (QUEUE,),
    Link.BLOBS: (BLOBS, STORE),
}

Maker = Callable[[], Fault]
Deck = Sequence[Maker]


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations of a fault, and the pause between two."""

    longest: timedelta = timedelta(seconds=12)
    afterwards: timedelta = timedelta(seconds=10)  # it may still be noticed so long after its end
    calm_seconds: tuple[float, float] = (1.0, 3.0)  # the shortest and the longest


_USUAL = Pace()


@dataclass(frozen=True, slots=True)
class Arsenal:
    """All kinds of faults for a cluster, with random targets."""

    cluster: ProxiedCluster
    observer: AnyServer
    stranger: Stranger
    random: Random

    def deck(self) -> Deck:
        return [*self._servers(), *self._workers(), *self._engine(), *self._links()]

    def _servers(self) -> Deck:
        pick, observer = self._server, self.observer
        kinds: list[Maker] = [
            lambda: KilledServer(pick(), observer),
            lambda: UsurpedServer(pick(), observer),
            lambda: StoppedServer(pick(), observer),
            lambda: restarted_server(pick(), observer),
        ]
        if self.cluster.clocks:
            kinds.append(self._wrong_clock)
        return kinds

    def _wrong_clock(self) -> Fault:
        clocks = list(self.cluster.clocks.values())
        offset = self.random.choice((HOUR, -HOUR))
        return WrongWallClock(self.cluster.servers[-1], clocks, offset)

    def _workers(self) -> Deck:
        pick, observer = self._worker, self.observer
        return [
            lambda: KilledProcess(pick(), observer, lambda node: node.pid, "worker"),
            lambda: KilledProcess(pick(), observer, _worker, "worker process"),
            lambda: KilledProcess(pick(), observer, _outer_guardian, "guardian"),
            lambda: StoppedProcesses(pick(), observer, lambda n: [_worker(n)], "worker process"),
            lambda: StoppedProcesses(pick(), observer, lambda n: [_guardian(n)], "guardian"),
            lambda: StoppedProcesses(pick(), observer, whole_tree, WHOLE_WORKER),
            lambda: restarted_worker(pick(), observer),
            lambda: ReplayedReport(self.stranger, observer),
            lambda: PoisonRun(observer),
        ]

    def _engine(self) -> Deck:
        cluster, servers = self.cluster, self.cluster.servers
        nodes = cluster.nats.nodes
        return [
            lambda: CrashedStore(cluster.postgres, servers),
            lambda: TerminatedConnections(cluster.postgres),
            lambda: RollingQueue(nodes, servers),
            lambda: KilledQueue(nodes, servers, wipes=False),
            lambda: KilledQueue(nodes, servers, wipes=True),
            lambda: KilledObjectStore(cluster.s3, self.observer, _PRINTING),
        ]

    def _links(self) -> Deck:
        return [
            partial(self._broken, link, word, how)
            for link in Link
            for word, how in (("cut", Proxy.cut), ("silent", Proxy.hang))
        ]

    def _broken(self, link: Link, word: str, how: Callable[[Proxy], None]) -> Fault:
        node = self._worker() if link is Link.SERVERS else self._server()
        owner = node.name.partition("-")[0]
        return BrokenLink(
            (node.name, *_BEHIND[link]),
            self.cluster.links[node.name, link],
            f"{owner} to {link} {word}",
            how,
            self._reading_at(node) if link is Link.BLOBS else unused,
        )

    def _reading_at(self, node: Node) -> Callable[[], None]:
        [url] = [server.url for server in self.cluster.servers if server.name == node.name]
        return partial(read_stored_output, self.observer, url, _PRINTING)

    def _server(self) -> ServerNode:
        return self.random.choice(self.cluster.servers)

    def _worker(self) -> WorkerNode:
        return self.random.choice(self.cluster.workers)


class Nemesis:
    """Goes through all kinds in random order, some alone and some together."""

    def __init__(
        self, deck: Deck, random: Random, tell: Callable[[str], None], pace: Pace = _USUAL
    ) -> None:
        self._pace = pace
        self._deck = list(deck)
        self._random = random
        self._tell = tell
        self._waiting: list[Maker] = []
        self.log: list[Injection] = []
        self.ended: list[str] = []  # nodes that no fault had stopped

    def walk(self, until: float, nodes: Sequence[Node] = ()) -> None:
        """Inject faults until a boot time, every kind at least once. Nodes may end only by one."""
        self._shuffle()
        while self._waiting:
            makers, faults = zip(*self._choose(), strict=True)
            self._repeat_unfelt(makers, self._strike(faults, nodes))
            threading.Event().wait(self._random.uniform(*self._pace.calm_seconds))
            if not self._waiting and boottime() < until:
                self._shuffle()

    def _shuffle(self) -> None:
        self._waiting = self._random.sample(self._deck, len(self._deck))

    def _repeat_unfelt(self, makers: Sequence[Maker], injections: Sequence[Injection]) -> None:
        """Repeat faults that had no effect, with another target."""
        for make, injection in zip(makers, injections, strict=True):
            tries = sum(each.kind == injection.kind for each in self.log)
            if not injection.was_felt and tries < _MAX_UNFELT:
                self._waiting.insert(0, make)

    def _choose(self) -> list[tuple[Maker, Fault]]:
        """Choose one or two faults with different targets, each with its maker."""
        make_first = self._waiting.pop()
        first = make_first()
        if not self._waiting or self._random.random() < _ALONE:
            return [(make_first, first)]
        make_second = self._waiting.pop()
        for _ in range(_TRIES):
            second = make_second()
            if second.touches.isdisjoint(first.touches):
                return [(make_first, first), (make_second, second)]
        self._waiting.insert(0, make_second)
        return [(make_first, first)]

    def _strike(self, faults: Sequence[Fault], nodes: Sequence[Node]) -> list[Injection]:
        """Inject together until both were felt. One may hide the other: check afterwards too."""
        injections = []
        for number, fault in enumerate(faults):
            self._note_ended(nodes, lasting=faults[:number])
            injections.append(self._inject(fault))
        least = max(fault.least for fault in faults)
        self._look(faults, injections, least, self._pace.longest)
        for fault, injection in zip(faults, injections, strict=True):
            fault.heal()
            injection.healed = boottime()
        self._look(faults, injections, timedelta(0), self._pace.afterwards)
        for injection in injections:
            self._tell(_line(injection))
        return injections

    def _note_ended(self, nodes: Sequence[Node], lasting: Sequence[Fault]) -> None:
        """Record nodes that have ended by themselves, before a fault hides it."""
        stopped = {name for fault in lasting for name in fault.touches}
        for node in nodes:
            if not node.is_running and node.name not in stopped:
                self.ended.append(node.name)
                self._tell(f"{node.name} has ended by itself")
                Node.launch(node)  # so that the next fault has something to break

    def _inject(self, fault: Fault) -> Injection:
        began = boottime()
        injection = Injection(fault.kind, fault.target, fault.inject(), began)
        self.log.append(injection)
        return injection

    def _look(
        self,
        faults: Sequence[Fault],
        injections: Sequence[Injection],
        least: timedelta,
        longest: timedelta,
    ) -> None:
        """Check whether the faults are felt, until all are."""
        passed = timedelta(0)
        began = boottime()
        while passed < longest:
            for fault, injection in zip(faults, injections, strict=True):
                injection.was_felt = injection.was_felt or fault.is_felt()
            passed = timedelta(seconds=boottime() - began)
            if all(each.was_felt for each in injections) and passed >= least:
                return
            threading.Event().wait(_LOOK_SECONDS)


def _line(injection: Injection) -> str:
    lasted = injection.healed - injection.began
    felt = "felt" if injection.was_felt else "not felt"
    detail = f" ({injection.detail})" if injection.detail else ""
    when = f"{injection.began:.1f} {lasted:5.1f} s"
    return f"{when}  {injection.kind}: {injection.target}{detail}, {felt}"


def _worker(node: WorkerNode) -> int:
    return node.worker_pid


def _outer_guardian(node: WorkerNode) -> int:
    return node.guardian_pids[0]


def _guardian(node: WorkerNode) -> int:
    return node.guardian_pids[1]
