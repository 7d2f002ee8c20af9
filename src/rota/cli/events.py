"""`rota events`: what happened, as it happens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from cyclopts import App, Parameter
from msgspec.json import encode

from rota.cli import times
from rota.cli.options import REMOTE, AtMost, Format, Remote
from rota.cli.printing import Column, ListView, print_list, short_ids
from rota.cli.references import ask_list
from rota.cli.terminal import inert, inert_json
from rota.sdk.answers import Event
from rota.sdk.client import Client

_MOST_NAMED = 3
_LATEST = 20  # events shown without a position

app = App(name="events", help="What happened, as it happens.")


def _time(event: Event) -> str:
    return times.absolute(event.time)


def _time_of_day(event: Event) -> str:
    return times.stamp(event.time, times.now())


def _kind(event: Event) -> str:
    return event.type.removeprefix("rota.")


def _ids(event: Event) -> list[str]:
    return [str(each) for each in event.data.get("ids") or [event.subject or ""]]


def _name(event: Event) -> str:
    """Return the name of the job, cart or worker."""
    names = [str(name) for name in event.data.get("names") or ()]
    return _some(names) or "–"


def _about(event: Event) -> str:
    """Return the subject of an event: of many the first."""
    first, *others = short_ids(_ids(event))
    return f"{first} +{len(others):,}" if others else first


def _every(event: Event) -> str:
    return _some(_ids(event))


def _some(texts: Sequence[str]) -> str:
    more = f" +{len(texts) - _MOST_NAMED:,}" if len(texts) > _MOST_NAMED else ""
    return " ".join(texts[:_MOST_NAMED]) + more


def _actor(event: Event) -> str:
    return str(event.data.get("actor") or "")


_TOLD_LIVE = (_kind, _name, _about, _actor)
EVENTS: ListView[Event] = ListView(
    columns=(
        Column("ID", lambda event: event.id, is_whole=True),
        Column("TIME", _time, is_whole=True, narrower=[_time_of_day]),
        Column("EVENT", _kind),
        Column("NAME", _name),
        Column("ABOUT", _about, is_whole=True),
        Column("BY", _actor),
        Column("IDS", _every, is_whole=True, only_wide=True),
    ),
    name=lambda event: event.id,
    empty="no events",
)


@app.command
def tail(
    *,
    after: Annotated[int | None, Parameter(help="Only events past the one with this id.")] = None,
    follow: Annotated[
        bool, Parameter(name=["--follow", "-f"], help="Stay for events to come.")
    ] = False,
    limit: AtMost = 100,
    remote: Remote = REMOTE,
) -> None:
    """Print the latest events, or those past one, oldest first."""
    with remote.connect() as client:
        if follow:
            _print_live(remote, client.follow_events(after=after))
            return
        latest = min(limit, _LATEST) if after is None else None
        listing = ask_list(client, Client.list_events(after=after, tail=latest), limit=limit)
    print_list(remote, listing, EVENTS)


def _print_live(remote: Remote, events: Iterable[Event]) -> None:
    terminal = remote.terminal()
    for event in events:
        if remote.format in (Format.TABLE, Format.WIDE):
            cells = (event.id, _time(event), *(part(event) for part in _TOLD_LIVE))
            terminal.show(inert("  ".join(cells).rstrip()))
        elif remote.format is Format.NAME:
            terminal.show(inert(event.id))
        else:
            terminal.show(inert_json(encode(event).decode()))
