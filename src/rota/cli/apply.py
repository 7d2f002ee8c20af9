"""`rota apply` and `rota validate`: jobs, calendars and carts from files and apps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import App, Parameter
from msgspec import structs

from rota.api.plans import Change, Plan, PlannedCalendar, PlannedCart, PlannedDeclaration
from rota.cli import times
from rota.cli.failures import FileRefused, counted, describe_problem
from rota.cli.options import DISPLAY, REMOTE, Display, Format, Remote
from rota.cli.printing import print_data
from rota.cli.references import Answered, ask
from rota.cli.terminal import MANY, CommandFailed, Exit, Terminal, inert, width_of
from rota.cli.texts import STANDARD_INPUT, NamedText, read_app, read_text, with_items
from rota.runtime.offline import CheckedFile, CheckedItems, check_file
from rota.runtime.offline import Problem as FileProblem
from rota.sdk.answers import Problem
from rota.sdk.client import Client
from rota.sdk.errors import Invalid
from rota.sdk.packing import with_local_digests

_MARKS = {"new": "+", "changed": "~", "removed": "-", "unchanged": " "}
_COLOURS = {"new": "green", "changed": "yellow", "removed": "red", "unchanged": "dim"}
_KIND_WIDTH = len("unchanged")


class _Entry(NamedTuple):
    name: str
    change: str
    lines: list[str]  # the first beside the name, the others below


def write_plan(terminal: Terminal, file: str, plan: Plan, present: datetime) -> None:
    """Print a line for each thing in the file, its differences and notes below it.

    Warnings go to standard error.
    """
    entries = [_entry("calendar", calendar) for calendar in plan.calendars]
    entries += [_entry("limit", limit) for limit in plan.limits]
    entries += [_entry("resource", resource) for resource in plan.resources]
    entries += [_job_entry(change, present) for change in plan.changes]
    entries += [_cart_entry(cart, present) for cart in plan.carts]
    width = max((width_of(inert(entry.name)) for entry in entries), default=0)
    for entry in entries:
        _write_entry(terminal, entry, width)
    for warning in plan.warnings:
        terminal.tell(describe_problem(warning, file=file))


def changed_count(plan: Plan) -> int:
    """Count the things of the file that change."""
    changes = [change.change for change in plan.changes]
    changes += [calendar.change for calendar in plan.calendars]
    changes += [declared.change for declared in (*plan.limits, *plan.resources)]
    changes += [cart.change for cart in plan.carts]
    return sum(change != "unchanged" for change in changes)


def _entry(kind: str, planned: PlannedCalendar | PlannedDeclaration) -> _Entry:
    lines = [planned.words, *planned.differences]
    return _Entry(f"{kind} {planned.name}", planned.change, lines)


def _job_entry(change: Change, present: datetime) -> _Entry:
    first = "history stays" if change.change == "removed" else _when(change, present)
    return _Entry(change.name, change.change, [first, *change.differences, *change.notes])


def _cart_entry(cart: PlannedCart, present: datetime) -> _Entry:
    first = "carts made of it stay" if cart.change == "removed" else cart.words
    if cart.next_at is not None:
        first += f", next {times.due(cart.next_at, present)}"
    return _Entry(f"cart {cart.name}", cart.change, [first, *cart.differences, *cart.notes])


def _write_entry(terminal: Terminal, entry: _Entry, width: int) -> None:
    name = inert(entry.name)
    padded = name + " " * (width - width_of(name))
    head = f"{_MARKS.get(entry.change, '?')} {padded}  {entry.change.ljust(_KIND_WIDTH)}"
    first, *below = entry.lines
    terminal.write(f"{terminal.colour(head, _COLOURS.get(entry.change, ''))}  {inert(first)}")
    for line in below:
        terminal.write(f"  {' ' * width}  {' ' * _KIND_WIDTH}  {inert(line)}")


def _when(change: Change, present: datetime) -> str:
    words = str(change.schedule or "on demand")
    if change.next_at is None:
        return words
    return f"{words}, next {times.due(change.next_at, present)}"


_NAMES_SET = re.compile(r"""^["']?set["']?\s*:|[{,]\s*"set"\s*:""", re.MULTILINE)
# A file's own project, at its top. The server reads the file; this only says where to knock.
_PROJECT = re.compile(
    r"""^["']?project["']?\s*:\s*["']?([A-Za-z0-9][A-Za-z0-9._-]*)""", re.MULTILINE
)
app = App(name="apply", usage="rota apply [OPTIONS] [FILE…]")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Choices:
    """Options of `rota apply`."""

    plan: Annotated[
        bool,
        Parameter(
            name=["--plan", "--dry-run"],
            help="Only show what would change; exit code 20 if something would.",
        ),
    ] = False
    prune: Annotated[
        bool,
        Parameter(help="Also delete jobs and carts that an earlier version of the file had."),
    ] = False
    if_match: Annotated[
        str | None, Parameter(help="Apply only if nothing changed since the plan with this etag.")
    ] = None
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")] = False


_AS_WRITTEN = Choices()


@app.default
def apply(
    *file: Annotated[Path, Parameter(name="FILE…", help="Job files; - is standard input.")],
    app: Annotated[
        str | None, Parameter(metavar="MODULE:APP", help="App whose Python functions are jobs.")
    ] = None,
    choices: Choices = _AS_WRITTEN,
    remote: Remote = REMOTE,
) -> Exit:
    """Create and update the jobs and carts of job files or of an app, each all or nothing.

    All of them are checked before the first is applied. Carts are defined, never started.
    """
    sources = _sources(file, app)
    if choices.if_match is not None and len(sources) > 1:
        message = "--if-match is about the plan of one file"
        raise CommandFailed(message, code=Exit.USAGE, hint="apply the files one by one")
    if choices.prune:
        _refuse_nameless(sources)
    with remote.connect() as client:
        sources = [_with_uploads(client, source) for source in sources]
        plans = [_ask(client, source, choices, plan=True) for source in sources]
        if choices.plan:
            return _show_plans(remote, sources, plans, choices)
        choices = _with_consent(remote.terminal(), plans, choices)
        applied = [_ask(client, source, choices) for source in sources]
    _show_applied(remote, sources, applied)
    return Exit.DONE


def _refuse_nameless(sources: Iterable[NamedText]) -> None:
    """Refuse to prune by standard input that names no set: all pipes would share one."""
    for source in sources:
        if source.argument == STANDARD_INPUT and not _NAMES_SET.search(source.text):
            message = f"{source.label} names no set, so nothing can be pruned by it"
            hint = "write set: NAME at its top, or apply a file"
            raise CommandFailed(message, code=Exit.USAGE, hint=hint)


def _sources(files: tuple[Path, ...], app: str | None) -> list[NamedText]:
    if not files and app is None:
        hint = "rota apply FILE…, or rota apply --app MODULE:app"
        raise CommandFailed("there is nothing to apply", code=Exit.USAGE, hint=hint)
    sources = [with_items(read_text(path), path.parent) for path in files]
    if app is not None:
        sources.append(read_app(app))
    return sources


def _with_uploads(client: Client, source: NamedText) -> NamedText:
    """Return a job file with uploads in the place of what lies beside it."""
    if source.folder is None:
        return source
    with _refused(source):
        return replace(source, text=client.upload_sources(source.text, source.folder))


@contextmanager
def _refused(source: NamedText) -> Iterator[None]:
    """Tell which file the problems are in, where there are any."""
    try:
        yield
    except Invalid as error:
        if not error.errors:
            raise
        problems = _placed(source, error.errors)
        raise FileRefused(source.label, error.message, problems) from error


def _ask(
    client: Client, source: NamedText, choices: Choices, *, plan: bool = False
) -> Answered[Plan]:
    call = Client.apply(
        source.text,
        name=source.set_name,
        plan=plan,
        prune=choices.prune,
        if_match=choices.if_match,
        items=source.items,
    )
    if client.project is None and (named := _PROJECT.search(source.text)):
        call = call.with_query(project=named[1])
    with _refused(source):
        answered = ask(client, call)
    warnings = _placed(source, answered.value.warnings)
    return replace(answered, value=structs.replace(answered.value, warnings=warnings))


def _placed(source: NamedText, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the problems with places that people can look up: an app has paths, but no lines."""
    if source.has_lines:
        return problems
    return tuple(structs.replace(problem, line=None, column=None) for problem in problems)


def _with_consent(terminal: Terminal, plans: list[Answered[Plan]], choices: Choices) -> Choices:
    """Ask for consent where it is needed; return the choices, bound to the plans agreed to."""
    changes = [change for plan in plans for change in plan.value.changes]
    jobs = [change.name for change in changes if change.change == "removed"]
    carts = [cart.name for plan in plans for cart in plan.value.carts if cart.change == "removed"]
    changed = sum(change.change != "unchanged" for change in changes)
    if jobs or carts:
        both = ((jobs, "job"), (carts, "cart"))
        counts = " and ".join(counted(len(names), what) for names, what in both if names)
        question = f"delete {counts} ({inert(', '.join([*jobs, *carts][:10]))})?"
    elif changed > MANY:
        question = f"change {changed:,} jobs?"
    else:
        return choices
    terminal.confirm(question, yes=choices.yes, otherwise="look with --plan, then add --yes")
    is_one_file = len(plans) == 1
    return (
        replace(choices, if_match=choices.if_match or plans[0].value.etag)
        if is_one_file
        else choices
    )


def _show_plans(
    remote: Remote, sources: list[NamedText], plans: list[Answered[Plan]], choices: Choices
) -> Exit:
    changed = sum(changed_count(plan.value) for plan in plans)
    if not _printed_as_data(remote, plans):
        terminal = remote.terminal()
        for source, plan in zip(sources, plans, strict=True):
            write_plan(terminal, source.label, plan.value, times.now())
        _tell_next(terminal, sources, plans, choices)
    return Exit.CHANGES if changed else Exit.DONE


def _tell_next(
    terminal: Terminal, sources: list[NamedText], plans: list[Answered[Plan]], choices: Choices
) -> None:
    changed = sum(changed_count(plan.value) for plan in plans)
    if not changed:
        terminal.tell("no changes")
        return
    command = ["rota apply"]
    command += [each.argument if each.has_lines else f"--app {each.label}" for each in sources]
    command += ["--prune"] if choices.prune else []
    command += [f"--if-match {plans[0].value.etag}"] if len(plans) == 1 else []
    terminal.tell(f"{counted(changed, 'change')}. Apply with: {inert(' '.join(command))}")


def _show_applied(remote: Remote, sources: list[NamedText], applied: list[Answered[Plan]]) -> None:
    if _printed_as_data(remote, applied):
        return
    terminal = remote.terminal()
    for source, plan in zip(sources, applied, strict=True):
        write_plan(terminal, source.label, plan.value, times.now())
    changed = sum(changed_count(plan.value) for plan in applied)
    terminal.tell(f"{counted(changed, 'change')} applied" if changed else "no changes")


def _printed_as_data(remote: Remote, plans: list[Answered[Plan]]) -> bool:
    match remote.format:
        case Format.TABLE | Format.WIDE:
            return False
        case Format.NAME:
            for plan in plans:
                for change in plan.value.changes:
                    remote.terminal().write(inert(change.name))
        case Format.JSON | Format.JSONL | Format.YAML:
            data = [plan.data for plan in plans]
            print_data(remote, data[0] if len(data) == 1 else data)
    return True


File = Annotated[
    Path, Parameter(name="FILE…", required=True, help="Job files; - is standard input.")
]


def validate(*file: File, display: Display = DISPLAY) -> Exit:
    """Check job files; every problem is told with its line and column."""
    checked = []
    for path in file:
        source = read_text(path)
        with _refused(source):
            text = with_local_digests(source.text, path.parent)
        found = check_file(text, name=source.stem, folder=path.parent)
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


def _problem(problem: FileProblem) -> dict[str, object]:
    return {
        "path": problem.path,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "hint": problem.hint,
        "warning": problem.warning,
    }
