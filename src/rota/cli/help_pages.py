"""Help pages as plain aligned text: readable in a pipe, by a screen reader, and in a test."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

_INDENT = "  "
_WIDEST_LABEL = 26
_WIDEST_PAGE = 100
_TITLES = {"Parameters": "Options"}
_PLACEHOLDERS = {"STR": "TEXT", "INT": "N"}  # names of Python's types say little to others
_NO_DEFAULTS = {None, "", "False", "()", "None"}


class HelpPage:
    """Implements cyclopts' `HelpFormatter`."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        if not panel.entries:
            return
        labels = [_label(entry) for entry in panel.entries]
        width = min(max(map(len, labels)), _WIDEST_LABEL)
        title = str(panel.title)
        lines = [f"{_TITLES.get(title, title)}:"]
        for label, entry in zip(labels, panel.entries, strict=True):
            lines += _entry_lines(label, _text(entry), width)
        _print(console, "\n".join([*lines, ""]))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        if usage:
            _print(console, f"Usage: {str(usage).strip()}\n")

    def render_description(
        self, console: Console, options: ConsoleOptions, description: object
    ) -> None:
        with console.capture() as capture:
            console.print(description, soft_wrap=True)
        if text := capture.get().strip():
            _print(console, f"{text}\n")


def _label(entry: HelpEntry) -> str:
    names = ", ".join(entry.display_labels)
    if entry.positional_label or not entry.metavar:
        return names
    return f"{names} {_PLACEHOLDERS.get(entry.metavar, entry.metavar)}"


def _text(entry: HelpEntry) -> str:
    description = entry.description
    text = str(getattr(description, "primary_renderable", description) or "").strip()
    parts = [text]
    if entry.choices:
        parts.append(f"One of: {', '.join(entry.choices)}.")
    if entry.default not in _NO_DEFAULTS:
        parts.append(f"[default: {entry.default}]")
    return " ".join(part for part in parts if part)


def _entry_lines(label: str, text: str, width: int) -> list[str]:
    hanging = _INDENT * 2 + " " * width
    first = f"{_INDENT}{label.ljust(width)}{_INDENT}"
    if len(label) > width:
        head, first = [f"{_INDENT}{label}"], hanging
    else:
        head = []
    page = min(shutil.get_terminal_size((_WIDEST_PAGE, 24)).columns, _WIDEST_PAGE)
    lines = textwrap.wrap(text, page, initial_indent=first, subsequent_indent=hanging)
    return [*head, *(lines or [first.rstrip()])]


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
