"""`rota up`: a server and a worker with one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rota import __version__
from rota.cli.exits import Exit
from rota.cli.failures import FileRefused, told_as_failures
from rota.cli.files import read_text, require_app
from rota.cli.options import Display, WholeNumber
from rota.cli.setup import load_settings
from rota.runtime import foreground
from rota.runtime.offline import check_file
from rota.runtime.server import Running
from rota.runtime.settings import Settings


def up(
    *,
    apply: Annotated[
        tuple[Path, ...],
        Parameter(metavar="FILE", help="Job file to apply at the start; repeatable."),
    ] = (),
    home: Annotated[Path | None, Parameter(help="Folder for all data. Default: ./.rota.")] = None,
    listen: Annotated[
        str | None, Parameter(metavar="HOST:PORT", help="Where to listen, on loopback only.")
    ] = None,
    slots: Annotated[
        WholeNumber | None, Parameter(help="Attempts the worker runs at once.")
    ] = None,
    resources: Annotated[
        str | None,
        Parameter(
            metavar="NAME=AMOUNT,…",
            help="What the worker offers, as cpu=4,memory=8GiB. Default: what it may use.",
        ),
    ] = None,
    app: Annotated[
        str | None, Parameter(metavar="MODULE:APP", help="App whose Python functions it serves.")
    ] = None,
    log_level: Annotated[str | None, Parameter(help="debug, info, warning or error.")] = None,
) -> Exit:
    """Start server and worker in the foreground; Ctrl-C stops them and leaves nothing behind."""
    settings = load_settings(
        home=home, listen=listen, slots=slots, resources=resources, app=app, log_level=log_level
    )
    _check(apply)
    if settings.app:
        require_app(settings.app)
    with told_as_failures():
        foreground.run_machine(settings, apply, lambda running: _greet(settings, running))
    return Exit.DONE


def _check(files: tuple[Path, ...]) -> None:
    for path in files:
        source = read_text(path)
        checked = check_file(source.text, name=source.stem, folder=path.parent)
        for file in checked.item_files:
            if not file.is_valid:
                raise FileRefused(file.label, f"{file.label} has errors", file.problems)
        if not checked.is_valid:
            raise FileRefused(source.label, f"{source.label} has errors", checked.problems)


def _greet(settings: Settings, running: Running) -> None:
    terminal = Display().terminal()
    jobs = sum(len(plan.changes) for plan in running.applied)
    applied = f" · {jobs} jobs applied" if jobs else ""
    data = f"data in {settings.home} (SQLite) · 1 worker, {settings.slots} slots{applied}"
    terminal.show(f"rota {__version__} · {running.url} · {data}")
    terminal.show(f"open {running.login_url} (loopback only, one-time link)")
    terminal.show("Next, in another shell: rota demo   or   rota apply jobs.yaml")
