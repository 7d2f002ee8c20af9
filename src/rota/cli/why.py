"""Page that explains why a run waits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rota.api.why import Obstacle, OrderOfService, Why
from rota.cli import times
from rota.cli.failures import counted
from rota.cli.terminal import Terminal, inert

_WAITING = frozenset({"SCHEDULED", "BLOCKED", "QUEUED"})
_NAMED = frozenset({"rate_limit", "quota", "resource"})  # their sentences begin with their names
_SHOWN = 4  # of those who have what is waited for


def write_why(terminal: Terminal, why: Why, present: datetime) -> None:
    """Print where a run stands, what blocks it, and what does not."""
    terminal.write(inert(f"{why.run} {why.job} · {_standing(why, present)}"))
    lines = [(*_label(obstacle), obstacle) for obstacle in why.reasons]
    width = max((len(label) for label, *_ in lines), default=0)
    for number, (label, text, obstacle) in enumerate(lines, 1):
        details = "".join(_details(obstacle, present))
        terminal.write(inert(f"  {number} {label:{width}}  {text}{details}"))
        if obstacle.action:
            terminal.write(inert(f"    {obstacle.action}"))
    if why.state in _WAITING:
        _write_rest(terminal, why)


def _write_rest(terminal: Terminal, why: Why) -> None:
    if why.order is not None and why.state == "QUEUED":
        terminal.write(inert(f"  in numbers: {_numbers(why.order)}"))
    if why.passed:
        terminal.write(f"  passed: {', '.join(why.passed)}")
    if why.not_reasons:
        names = (f"{each.name} ({each.message})" for each in why.not_reasons)
        terminal.write(inert(f"  not a reason: {', '.join(names)}"))


def _standing(why: Why, present: datetime) -> str:
    if why.state not in _WAITING:
        return why.summary
    waited = f" for {times.length((present - why.since).total_seconds())}" if why.since else ""
    return f"{why.state.lower()}{waited} · {_start(why.starts_at, present)}"


def _start(at: datetime | None, present: datetime) -> str:
    if at is None:
        return "start unknown"
    seconds = (at - present).total_seconds()
    return f"likely to start {f'in about {times.length(seconds)}' if seconds > 1 else 'at once'}"


def _label(obstacle: Obstacle) -> tuple[str, str]:
    """Return the name of an obstacle and its description."""
    name, colon, text = obstacle.message.partition(": ")
    if colon and obstacle.gate in _NAMED:
        return name, text
    return obstacle.gate, obstacle.message.removesuffix(f" ({obstacle.gate})")


def _details(obstacle: Obstacle, present: datetime) -> Iterator[str]:
    if obstacle.eligible_at:
        verb = "next" if obstacle.gate in _NAMED else "opens"
        yield f", {verb} {times.moment(obstacle.eligible_at, present)}"
    if obstacle.holders:
        yield f", held by {_holders(obstacle, present)}"
    if obstacle.next_at:
        yield f", next due {times.moment(obstacle.next_at, present)}"
    if obstacle.before:
        yield f", {counted(obstacle.before, 'run')} before it"


def _holders(obstacle: Obstacle, present: datetime) -> str:
    shown = " ".join(holder.run for holder in obstacle.holders[:_SHOWN])
    more = " …" if len(obstacle.holders) > _SHOWN else ""
    ends = [holder.ends_at for holder in obstacle.holders if holder.ends_at]
    if not ends:
        return f"{shown}{more}"
    left = times.length((min(ends) - present).total_seconds())
    first = "the first " if len(obstacle.holders) > 1 else ""
    return f"{shown}{more} ({first}ends in about {left})"


def _numbers(order: OrderOfService) -> str:
    return ", ".join(
        (
            f"F {order.tag:.3g}",
            f"V {order.virtual_time:.3g}",
            f"cost {order.cost:.3g}",
            f"boost {order.boost:g}",
            f"weight {order.weight:.3g}",
            f"{order.share} has {order.used:.0%} of the pool and may have {order.entitled:.0%}",
            f"its turn comes with the next {counted(order.latest_turn, 'start')} at the latest",
        )
    )
