"""Which process belongs to which tree, and the end of whole trees.

Orphans are given to the guardian by the kernel. So every process below it hangs below one of its
direct children, and to know the trees of the direct children is to know those of all.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from resource import struct_rusage

from rota.guardian import processes
from rota.guardian.cgroups import Group
from rota.guardian.processes import Trait

_LONGEST_REPORT = 4096


@dataclass(slots=True, eq=False)
class Tree:
    """A main process, started here, with all that it starts."""

    key: str
    pid: int  # of the main process
    traits: tuple[Trait, ...]  # by which strays are recognised
    wait_status: int | None = None  # of the main process; None while it lives
    ended_at: float = 0.0  # boottime when the end of the main process was seen
    cpu_seconds: float = 0.0
    max_rss_bytes: int = 0
    strays: set[int] = field(default_factory=set)  # left behind by a main process not killed here
    is_condemned: bool = False  # to be killed, whatever lives of it
    group: Group | None = None  # of a confined one
    report: int | None = None  # read end of a pipe: why a confined one was not executed
    is_signalled_inside: bool = False  # signals but KILL are for deeper pid namespaces only
    waiting: set[int] = field(default_factory=set)  # signals that nobody inside has noticed yet
    cause: str = ""  # limit that it ran into

    @property
    def has_ended(self) -> bool:
        return self.wait_status is not None

    def add_usage(self, usage: struct_rusage) -> None:
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.max_rss_bytes = max(self.max_rss_bytes, usage.ru_maxrss * 1024)

    def take_group_usage(self) -> None:
        """Prefers what its group counted, which also knows of processes nobody waited for."""
        if self.group is None:
            return
        usage = self.group.usage()
        self.cause = usage.cause
        if usage.cpu_seconds is not None:
            self.cpu_seconds = usage.cpu_seconds
        if usage.max_memory_bytes is not None:
            self.max_rss_bytes = usage.max_memory_bytes

    def take_report(self) -> str:
        """What it wrote before it ended; only once, and only then, or it would be waited for."""
        if self.report is None:
            return ""
        text = os.read(self.report, _LONGEST_REPORT).decode()
        os.close(self.report)
        self.report = None
        return text


class Trees:
    """The trees of all attempts. A tree is there until its last process was reaped.

    What the worker leaves behind is recognised and left alone: no attempt is blamed for it.
    """

    def __init__(self, worker: Tree) -> None:
        self._children = processes.OwnChildren()
        self._by_key: dict[str, Tree] = {}
        self._by_trait: dict[Trait, Tree] = dict.fromkeys(worker.traits, worker)
        self._mains: dict[int, Tree] = {worker.pid: worker}
        self._strays: dict[int, Tree] = {}
        self._suspects: dict[int, frozenset[Tree]] = {}
        self._unsettled: set[Tree] = set()
        self._waiting: set[Tree] = set()  # with signals that nobody inside has noticed yet

    @property
    def is_settled(self) -> bool:
        """False while processes have to go, or to be signalled, that are still there."""
        return not self._unsettled and not self._waiting

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def add(self, tree: Tree) -> None:
        self._by_key[tree.key] = tree
        self._mains[tree.pid] = tree
        self._by_trait.update(dict.fromkeys(tree.traits, tree))

    def reaped(self, pid: int, wait_status: int, usage: struct_rusage, now: float) -> None:
        """To be told of every child that was waited for."""
        self._suspects.pop(pid, None)
        if stray_of := self._strays.pop(pid, None):
            stray_of.add_usage(usage)
        if tree := self._mains.pop(pid, None):
            tree.add_usage(usage)
            tree.wait_status, tree.ended_at = wait_status, now
            self._unsettled.add(tree)

    def signal(self, key: str, number: int) -> None:
        """Signals the processes of the tree; a tree that is gone needs none."""
        tree = self._by_key.get(key)
        if tree is None:
            return
        if tree.is_signalled_inside and number != signal.SIGKILL:
            tree.waiting.add(number)
            self._waiting.add(tree)
            self.signal_waiting()
        else:
            self._find_strays()
            processes.signal_trees(self._tops(tree), number)

    def signal_waiting(self) -> None:
        """Signals what lives inside sandboxes: it may have to begin to live there first."""
        for tree in list(self._waiting):
            if not tree.has_ended:
                noticed = [n for n in tree.waiting if processes.signal_inside([tree.pid], n)]
                tree.waiting.difference_update(noticed)
            if tree.has_ended or not tree.waiting:
                self._waiting.discard(tree)

    def condemn(self, key: str) -> None:
        """Lets `settle` kill the tree, again and again until nothing of it is left."""
        if tree := self._by_key.get(key):
            tree.is_condemned = True
            self._unsettled.add(tree)

    def settle(self) -> list[Tree]:
        """Kills what may not live any longer and returns the trees that are now wholly gone."""
        if not self._unsettled:
            return []
        self._find_strays()
        return [tree for tree in list(self._unsettled) if self._clear(tree)]

    def _clear(self, tree: Tree) -> bool:
        """Kills what is left of it; True when nothing was."""
        tops = self._tops(tree)
        if not tops and (tree.group is None or tree.group.is_empty):
            self._remove(tree)
            return True
        if not tree.is_condemned:
            tree.strays.update(tops)
        if tree.group is not None:
            tree.group.kill()
        processes.kill_tops(tops)
        return False

    def _remove(self, tree: Tree) -> None:
        self._unsettled.discard(tree)
        del self._by_key[tree.key]
        for trait in tree.traits:
            if self._by_trait.get(trait) is tree:  # a later tree may have got the same pid
                del self._by_trait[trait]

    def _tops(self, tree: Tree) -> list[int]:
        strays = [pid for pid, owner in self._strays.items() if owner is tree]
        return strays if tree.has_ended else [tree.pid, *strays]

    def _find_strays(self) -> None:
        # Counting suffices as long as nobody was left behind, which is nearly always.
        if self._children.count() == len(self._mains) + len(self._strays):
            return
        for pid in self._children.pids():
            if pid not in self._mains and pid not in self._strays:
                self._assign(pid)

    def _assign(self, pid: int) -> None:
        if owner := self._recognise(pid) or self._blame(pid):
            self._strays[pid] = owner

    def _recognise(self, pid: int) -> Tree | None:
        for trait in processes.traits(pid):
            if tree := self._by_trait.get(trait):
                return tree
        return None

    def _blame(self, pid: int) -> Tree | None:
        """A process without any trait goes with the last tree that can have started it."""
        # Those that were there when it was first seen: no later tree can have started it.
        suspects = self._suspects.setdefault(pid, frozenset(self._by_key.values()))
        if all(tree.has_ended for tree in suspects):
            return max(suspects, key=lambda tree: tree.ended_at, default=None)
        return None
