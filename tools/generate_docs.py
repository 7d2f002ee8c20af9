"""Renew what pages of `docs/` take from the code, and the snapshot of the OpenAPI document.

    python tools/generate_docs.py

A page is written by hand around blocks that this tool fills:

    <!-- generated: settings -->

    …

    <!-- end -->
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import cast

from cyclopts import App
from fastapi.routing import APIRoute

from rota.cli.main import COMMANDS
from rota.cli.main import main as run_rota
from rota.cli.program import build
from rota.domain import jobfile
from rota.domain.states import (
    FINAL_STATES,
    INITIAL_STATES,
    LEASED_STATES,
    TRANSITIONS,
    WAITING_STATES,
    RunEvent,
    RunState,
)
from rota.operations.engine import Engine
from rota.runtime.settings import MEANINGS, Settings, shown
from rota.server.gateway.app import api_routers, create_app
from rota.server.gateway.auth import Where, need_of
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.parameters import GatewaySettings

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OPENAPI = ROOT / "tests" / "unit" / "server" / "gateway" / "openapi.json"
BLOCK = re.compile(r"(<!-- generated: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

# Options that every command with answers to print has; the page of the CLI tells them once.
_SHARED = ("--output", "--json", "--no-color", "--plain", "--url", "--project")
WIDTH = "100"  # of help pages, in columns

Arrow = tuple[str, str, str]  # from, event, to


def main() -> None:
    """Write every page whose blocks are out of date, and the snapshot if it is."""
    os.environ["COLUMNS"] = WIDTH
    for page in sorted(DOCS.rglob("*.md")):
        _renew(page, renewed(page.read_text("utf-8")))
    _renew(OPENAPI, openapi())


def _renew(file: Path, new: str) -> None:
    if not file.exists() or file.read_text("utf-8") != new:
        file.write_text(new, "utf-8")
        print(f"renewed {file.relative_to(ROOT)}")


def renewed(page: str) -> str:
    """The page with all its blocks as the code has them now."""

    def fill(block: re.Match[str]) -> str:
        return f"{block[1]}\n{BLOCKS[block['name']]().strip()}\n\n{block[3]}"

    return BLOCK.sub(fill, page)


def settings() -> str:
    """Every setting with its variable, default and meaning."""
    rows = [
        (f"`{field.name}`", f"`ROTA_{field.name.upper()}`", _shown(field.name, field.default))
        for field in fields(Settings)
    ]
    meanings = [MEANINGS[field.name] for field in fields(Settings)]
    return _table(
        ("setting", "variable", "default", "meaning"),
        [(*row, meaning) for row, meaning in zip(rows, meanings, strict=True)],
    )


def commands() -> str:
    """The help page of every command."""
    return "\n".join(_section(words) for words in command_lines())


def command_lines() -> Iterator[tuple[str, ...]]:
    """Every command and every verb, in the order of `rota --help`."""
    program = build()
    for command in COMMANDS:
        yield from _with_verbs(program[command.name], (command.name,))


def _with_verbs(app: App, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for verb in app:
        if not verb.startswith("-"):
            yield from _with_verbs(app[verb], (*words, verb))


def routes() -> str:
    """Every request that the API answers."""
    return _table(
        ("request", "role", "what"),
        [
            (f"`{method} {route.path}`", _needed(method, route), _summary(route))
            for route in _documented_routes()
            for method in sorted(route.methods or ())
        ],
    )


def _needed(method: str, route: APIRoute) -> str:
    need = need_of(method, route)
    if need is None:
        return ""
    match need.where:
        case Where.PROJECT:
            return str(need.role)
        case Where.FILE:
            return f"{need.role} in each project of the file"
        case Where.INSTALLATION:
            return f"{need.role} in `*`"
        case Where.SOMEWHERE:
            return "any"
        case Where.NOWHERE:
            return "none"


def openapi() -> str:
    """The OpenAPI document with sorted keys, so that a review shows every change of the API."""
    settings = GatewaySettings()
    app = create_app(cast("Engine", None), settings)
    document = openapi_document(app, settings)
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def transitions() -> str:
    """All ways from state to state."""
    return _table(
        ("from", "event", "to"),
        [(f"`{before}`", f"`{event}`", f"`{after}`") for (before, event), after in _by_state()],
    )


def diagram() -> str:
    """The same as a picture; what leaves all states of a group alike leaves the group."""
    lines = ["```mermaid", "flowchart LR", "  start(( ))"]
    lines += _group("waiting", WAITING_STATES) + _group("working", LEASED_STATES)
    arrows = _merged(_gathered(_arrows()))
    lines += [f"  {before} -->|{event}| {after}" for before, event, after in arrows]
    lines += [f"  start --> {state}" for state in RunState if state in INITIAL_STATES]
    lines += [f"  {state}([{state}])" for state in RunState if state in FINAL_STATES]
    return "\n".join([*lines, "```"])


def _section(words: tuple[str, ...]) -> str:
    title = " ".join(("rota", *words))
    return f"{'#' * (len(words) + 1)} {title}\n\n```text\n{_help_page(words)}\n```\n"


def _help_page(words: tuple[str, ...]) -> str:
    with redirect_stdout(StringIO()) as printed:
        run_rota([*words, "--help"])
    page, heading, shared = printed.getvalue().partition("Shared options:\n")
    own = [line for line in shared.splitlines() if line and not _is_of_all(line)]
    return "\n".join([page + heading.strip(), *own] if own else [page]).strip()


def _is_of_all(line: str) -> bool:
    """Return whether an option is the one that the page tells of at its beginning."""
    return line.strip().startswith(_SHARED) and "repeat it for more" not in line


def _documented_routes() -> Iterator[APIRoute]:
    for router in api_routers():
        for route in router.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                yield route


def _summary(route: APIRoute) -> str:
    first, _, _ = inspect.cleandoc(route.endpoint.__doc__ or "").partition("\n\n")
    return first.replace("\n", " ")


def _by_state() -> list[tuple[tuple[RunState, RunEvent], RunState]]:
    order = list(RunState)
    return sorted(TRANSITIONS.items(), key=lambda way: order.index(way[0][0]))


def _arrows() -> list[Arrow]:
    return [(before, event, after) for (before, event), after in _by_state()]


def _gathered(arrows: list[Arrow]) -> list[Arrow]:
    """Arrows that leave every state of a group become one that leaves the group."""
    for name, states in (("waiting", WAITING_STATES), ("working", LEASED_STATES)):
        for event in RunEvent:
            alike = [way for way in arrows if way[0] in states and way[1] == event]
            if len(alike) == len(states) and len({after for _, _, after in alike}) == 1:
                arrows = [way for way in arrows if way not in alike]
                arrows.append((name, event, alike[0][2]))
    return arrows


def _merged(arrows: list[Arrow]) -> list[Arrow]:
    """One arrow between two places, with all the events that take it."""
    events: dict[tuple[str, str], list[str]] = {}
    for before, event, after in arrows:
        events.setdefault((before, after), []).append(event)
    return [(before, ", ".join(names), after) for (before, after), names in events.items()]


def _group(name: str, states: Iterable[RunState]) -> list[str]:
    members = [f"    {state}" for state in RunState if state in frozenset(states)]
    return [f"  subgraph {name}", *members, "  end"]


def _shown(name: str, default: object) -> str:
    text = shown(name, default)
    return f"`{text}`" if text else ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "diagram": diagram,
    "jobfile": jobfile.reference,
    "routes": routes,
    "settings": settings,
    "transitions": transitions,
}

if __name__ == "__main__":
    main()
