"""What commands about limits, resources and quotas have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from rota.cli import times
from rota.cli.asking import ask, ask_list
from rota.cli.change_views import write_change
from rota.cli.inert import inert
from rota.cli.options import Destroying, Remote, Writing
from rota.cli.printing import ListView, print_list, print_one
from rota.cli.terminal import Terminal
from rota.sdk.answers import Page
from rota.sdk.exchange import Call
from rota.sdk.limit_answers import DeclarationChange, Limit, Resource

D = TypeVar("D", Limit, Resource)


@dataclass(frozen=True, slots=True)
class Declared(Generic[D]):
    """What is declared under a name: how to ask for it, and how it is shown."""

    word: str
    list_all: Callable[[], Call[Page[D]]]
    get: Callable[[str], Call[D]]
    delete: Callable[[str], Call[None]]
    table: ListView[D]
    page: Callable[[Terminal, D, datetime], None]


def list_declared(remote: Remote, declared: Declared[D], limit: int) -> None:
    with remote.connect() as client:
        listing = ask_list(client, declared.list_all(), limit=limit)
    print_list(remote, listing, declared.table)


def show_declared(remote: Remote, declared: Declared[D], name: str) -> None:
    with remote.connect() as client:
        found = ask(client, declared.get(name))
    print_one(
        remote,
        found,
        name=lambda found: found.name,
        page=lambda terminal, found: declared.page(terminal, found, times.now()),
    )


def set_declared(writing: Writing, what: str, call: Call[DeclarationChange]) -> None:
    """Save it and say what that changed."""
    with writing.connect() as client:
        change = ask(client, call)
    print_one(
        writing,
        change,
        name=lambda change: change.name,
        page=lambda terminal, change: write_change(terminal, what, change),
    )


def delete_declared(destroying: Destroying, declared: Declared[D], name: str) -> None:
    with destroying.connect() as client:
        found = ask(client, declared.get(name)).value
        what = f"{declared.word} {found.name}"
        if is_agreed(destroying, f"delete {what}"):
            ask(client, declared.delete(found.name))
            destroying.terminal().tell(f"deleted {inert(what)}")


def is_agreed(destroying: Destroying, what: str) -> bool:
    """Whether to do it: not in a rehearsal, and not without somebody's consent."""
    terminal = destroying.terminal()
    if destroying.dry_run:
        terminal.tell(inert(f"would {what}"))
        return False
    terminal.confirm(inert(f"{what}?"), yes=destroying.yes, otherwise="add --yes to do it")
    return True
