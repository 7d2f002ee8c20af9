"""`rota events`: what happened, as it happens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from msgspec.json import encode

from rota.cli import times
from rota.cli.options import REMOTE, Format, Remote, WholeNumber
from rota.cli.printing import Column, ListView, print_list, short_ids
from rota.cli.references import Listing, ask_list
from rota.cli.terminal import inert, inert_json
from rota.sdk.answers import Event
from rota.sdk.client import Client

_MOST_NAMED = 3
_LATEST = 20  # events shown without a position
_PAST_ONE = 100  # events shown past one
_MOST = 100_000

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
    limit: Annotated[
        WholeNumber | None,
        Parameter(
            name=["--limit", "-n"],
            validator=Number(gte=1, lte=_MOST),
            help="How many at most. Default: the latest 20; with --after 100.",
        ),
    ] = None,
    remote: Remote = REMOTE,
) -> None:
    """Print the latest events, or those past one, oldest first."""
    with remote.connect() as client:
        if follow:
            _follow(client, remote, after, limit or _LATEST)
            return
        if after is None:
            listing = _latest(client, limit or _LATEST)
        else:
            listing = ask_list(client, Client.list_events(after=after), limit=limit or _PAST_ONE)
    print_list(remote, listing, EVENTS)


def _latest(client: Client, count: int) -> Listing[Event]:
    listing = ask_list(client, Client.list_events(tail=count), limit=count)
    return replace(listing, next_cursor=None)  # what came meanwhile is not asked for


def _follow(client: Client, remote: Remote, after: int | None, count: int) -> None:
    """Print events as they come; without a position, first the latest that there are."""
    position: int | str | None = after
    if position is None:
        latest = _latest(client, count).items
        _print_live(remote, latest)
        position = latest[-1].id if latest else 0
    _print_live(remote, client.follow_events(after=position))


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
