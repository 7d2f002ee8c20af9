"""Answers in the format that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rota.cli.asking import Answered, Listing
from rota.cli.inert import inert, inert_json
from rota.cli.options import Display, Format
from rota.cli.table import Column, write_table
from rota.cli.terminal import Terminal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListView(Generic[T]):
    """How a kind of list looks."""

    columns: Sequence[Column[T]]
    name: Callable[[T], str]
    empty: str  # what to say, and to type, where there is nothing


def print_list(display: Display, listing: Listing[T], view: ListView[T]) -> None:
    terminal = display.terminal()
    match display.format:
        case Format.TABLE | Format.WIDE:
            _print_table(display, terminal, listing, view)
        case Format.JSONL:
            for item in listing.data:
                terminal.write(_json(item))
        case Format.NAME:
            for item in listing.items:
                terminal.write(inert(view.name(item)))
        case Format.JSON | Format.YAML:
            print_data(display, {"items": listing.data, "next_cursor": listing.next_cursor})


def print_one(
    display: Display,
    answered: Answered[T],
    *,
    name: Callable[[T], str],
    page: Callable[[Terminal, T], None],
) -> None:
    """One thing; `page` writes it for people."""
    match display.format:
        case Format.TABLE | Format.WIDE:
            page(display.terminal(), answered.value)
        case Format.NAME:
            display.terminal().write(inert(name(answered.value)))
        case Format.JSON | Format.JSONL | Format.YAML:
            print_data(display, answered.data)


def print_data(display: Display, data: object) -> None:
    """Any JSON-able data, as YAML only where that was asked for."""
    terminal = display.terminal()
    if display.format is Format.YAML:
        import yaml  # only those who ask for it wait for it

        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
        terminal.write(text.removesuffix("\n"))
    else:
        terminal.write(_json(data, indent=None if display.format is Format.JSONL else 2))


def _json(data: object, indent: int | None = None) -> str:
    return inert_json(json.dumps(data, indent=indent, ensure_ascii=False))


def _print_table(
    display: Display, terminal: Terminal, listing: Listing[T], view: ListView[T]
) -> None:
    if not listing.items:
        terminal.tell(view.empty)
        return
    write_table(terminal, view.columns, listing.items, wide=display.format is Format.WIDE)
    if listing.next_cursor is not None:
        terminal.tell(f"the first {len(listing.items):,}; more with --limit")
