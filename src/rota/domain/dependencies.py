"""Jobs that come after others: what is missing, and rings in which nobody would ever go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Upstream:
    """A job that another one follows."""

    name: str
    completed_at: datetime | None = None  # when a run of it last did; None: none has
    exists: bool = True  # False: it was deleted


def missing(upstreams: Sequence[Upstream], since: datetime) -> tuple[Upstream, ...]:
    """Those that have not completed since then."""
    return tuple(
        upstream
        for upstream in upstreams
        if not upstream.exists or upstream.completed_at is None or upstream.completed_at <= since
    )


def find_cycle(edges: Mapping[str, Collection[str]]) -> list[str] | None:
    """A ring among jobs and those that each follows, such as [a, b, a]; None: there is none."""
    done: set[str] = set()
    for start in sorted(edges):
        if start not in done and (cycle := _cycle_from(start, edges, done)):
            return cycle
    return None


def _cycle_from(
    start: str, edges: Mapping[str, Collection[str]], done: set[str]
) -> list[str] | None:
    """Walks in depth without recursion: chains of jobs may be long."""
    path, ahead = [start], [_followed(start, edges)]
    place = {start: 0}  # of each job on the path
    while path:
        upstream = next(ahead[-1], None)
        if upstream is None:
            ahead.pop()
            done.add(path.pop())
            place.popitem()
        elif upstream in place:
            return [*path[place[upstream] :], upstream]
        elif upstream not in done:
            place[upstream] = len(path)
            path.append(upstream)
            ahead.append(_followed(upstream, edges))
    return None


def _followed(job: str, edges: Mapping[str, Collection[str]]) -> Iterator[str]:
    return iter(sorted(edges.get(job, ())))


def cycle_text(cycle: Sequence[str]) -> str:
    """`a → b → a`."""
    return " → ".join(cycle)
