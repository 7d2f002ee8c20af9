"""Which process belongs to which tree, and the end of whole trees.

Orphans are given to the guardian by the kernel. So every process below it hangs below one of its
direct children, and to know the trees of the direct children is to know those of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from resource import struct_rusage

from rota.guardian import processes
from rota.guardian.processes import Trait


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

    @property
    def has_ended(self) -> bool:
        return self.wait_status is not None

    def add_usage(self, usage: struct_rusage) -> None:
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.max_rss_bytes = max(self.max_rss_bytes, usage.ru_maxrss * 1024)


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

    @property
    def is_settled(self) -> bool:
        """False while processes that have to go are still there."""
        return not self._unsettled

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
        """Signals every process of the tree; a tree that is gone needs none."""
        if tree := self._by_key.get(key):
            self._find_strays()
            processes.signal_trees(self._tops(tree), number)

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
        if not tops:
            self._remove(tree)
            return True
        if not tree.is_condemned:
            tree.strays.update(tops)
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
