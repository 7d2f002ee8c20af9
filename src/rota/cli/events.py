"""`rota events`: what happened, as it happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from cyclopts import App, Parameter
from msgspec.json import encode

from rota.cli import times
from rota.cli.asking import ask_list
from rota.cli.options import REMOTE, AtMost, Format, Remote
from rota.cli.printing import Column, ListView, print_list
from rota.cli.terminal import inert, inert_json
from rota.sdk.answers import Event
from rota.sdk.client import Client

_LATEST = 20  # events shown when nobody says from where

app = App(name="events", help="What happened, as it happens.")


def _time(event: Event) -> str:
    return times.absolute(event.time)


def _kind(event: Event) -> str:
    return event.type.removeprefix("rota.")


def _about(event: Event) -> str:
    ids = event.data.get("ids") or [event.subject or ""]
    more = f" and {len(ids) - 3:,} more" if len(ids) > 3 else ""
    return " ".join(map(str, ids[:3])) + more


def _actor(event: Event) -> str:
    return str(event.data.get("actor") or "")


EVENTS: ListView[Event] = ListView(
    columns=(
        Column("ID", lambda event: event.id),
        Column("TIME", _time),
        Column("EVENT", _kind),
        Column("ABOUT", _about),
        Column("BY", _actor),
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
            cells = (_time(event), _kind(event), _about(event), _actor(event))
            terminal.show(inert("  ".join(cells).rstrip()))
        elif remote.format is Format.NAME:
            terminal.show(inert(event.id))
        else:
            terminal.show(inert_json(encode(event).decode()))
