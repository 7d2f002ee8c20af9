"""What saving something did, or would do."""

from __future__ import annotations

from rota.cli.inert import inert
from rota.cli.terminal import Terminal
from rota.sdk.calendar_answers import CalendarChange
from rota.sdk.limit_answers import DeclarationChange

_VERBS = {
    ("new", True): "created",
    ("changed", True): "changed",
    ("new", False): "would create",
    ("changed", False): "would change",
}


def write_change(terminal: Terminal, what: str, change: CalendarChange | DeclarationChange) -> None:
    """`what` names the thing that was saved: `calendar weekends`."""
    verb = _VERBS.get((change.change, change.applied))
    if verb is None:
        terminal.tell(inert(f"{what} is unchanged"))
        return
    terminal.tell(inert(f"{verb} {what}: {change.words}"))
    for line in change.differences:
        terminal.tell(inert(f"  {line}"))
