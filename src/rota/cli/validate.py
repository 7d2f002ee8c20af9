"""`rota validate`: check job files without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rota.cli.exits import Exit
from rota.cli.failures import counted, describe_problem
from rota.cli.files import read_text
from rota.cli.inert import inert
from rota.cli.options import DISPLAY, Display, Format
from rota.cli.printing import print_data
from rota.cli.terminal import Terminal
from rota.runtime.offline import CheckedFile, CheckedItems, Problem, check_file

Files = Annotated[tuple[Path, ...], Parameter(name="FILE…", help="Job files; - is standard input.")]


def validate(file: Files, /, *, display: Display = DISPLAY) -> Exit:
    """Check job files; every problem is told with its line and column."""
    checked = []
    for path in file:
        source = read_text(path)
        found = check_file(source.text, name=source.stem, folder=path.parent)
        checked.append((source.label, found))
    if display.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(display, [_document(label, result) for label, result in checked])
    else:
        for label, result in checked:
            _tell(display, label, result)
    return Exit.DONE if all(result.is_valid for _, result in checked) else Exit.INVALID_FILE


def _tell(display: Display, label: str, checked: CheckedFile) -> None:
    terminal = display.terminal()
    for problem in checked.problems:
        terminal.tell(describe_problem(problem, file=label))
    for file in checked.item_files:
        _tell_items(terminal, file)
    errors = [problem for problem in checked.problems if not problem.warning]
    if checked.is_valid:
        terminal.write(f"{label}: valid, {_content(checked)}")
    elif errors:
        terminal.tell(f"{label}: {counted(len(errors), 'error')}")


def _tell_items(terminal: Terminal, checked: CheckedItems) -> None:
    for problem in checked.problems:
        terminal.tell(describe_problem(problem, file=checked.label))
    if not checked.is_valid:
        terminal.tell(inert(f"{checked.label}: {checked.verdict}"))


def _content(checked: CheckedFile) -> str:
    others = (
        (checked.carts, "cart"),
        (checked.limits, "limit"),
        (checked.resources, "resource"),
    )
    counts = [counted(len(names), what) for names, what in others if names]
    return ", ".join([counted(len(checked.jobs), "job"), *counts])


def _document(label: str, checked: CheckedFile) -> dict[str, object]:
    return {
        "file": label,
        "valid": checked.is_valid,
        "jobs": list(checked.jobs),
        "carts": list(checked.carts),
        "limits": list(checked.limits),
        "resources": list(checked.resources),
        "problems": list(map(_problem, checked.problems)),
        "item_files": list(map(_item_file, checked.item_files)),
    }


def _item_file(checked: CheckedItems) -> dict[str, object]:
    return {
        "file": checked.label,
        "cart": checked.cart,
        "valid": checked.is_valid,
        "items": checked.items,
        "problems": list(map(_problem, checked.problems)),
    }


def _problem(problem: Problem) -> dict[str, object]:
    return {
        "path": problem.path,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "hint": problem.hint,
        "warning": problem.warning,
    }
