"""`rota up`: a server and a worker with one command; `rota demo`: something to look at in it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from rota import __version__
from rota.cli.cart_watching import watch_cart
from rota.cli.failures import FileRefused, counted, errors_as_failures
from rota.cli.options import DESTROYING, Destroying, Display, WholeNumber
from rota.cli.references import ask
from rota.cli.servers import words_of_default
from rota.cli.setup import load_settings
from rota.cli.terminal import CommandFailed, Exit, Terminal
from rota.cli.texts import read_text, require_app
from rota.runtime import machine, server
from rota.runtime.offline import check_file
from rota.runtime.server import Running
from rota.runtime.settings import Settings
from rota.sdk.client import Client


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
    with errors_as_failures():
        server.run_machine(settings, apply, lambda running: _greet(settings, running))
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
    applied = f" · {counted(jobs, 'job')} applied" if jobs else ""
    data = f"data in {settings.home} (SQLite) · 1 worker, {settings.slots} slots{applied}"
    terminal.show(f"rota {__version__} · {running.url} · {data}")
    terminal.show(shown_link(settings, running.login_url, terminal))
    if running.new_key_ring is not None:
        terminal.show(
            f"made {running.new_key_ring}: it protects copies of the database, not this folder"
        )
    walls, (rota, _) = running.walls, _rota_on(settings.home)
    terminal.show(words_of_default(walls.isolation, walls.network, rota))
    for line in _next_steps(settings.home, has_jobs=jobs > 0, app=settings.app or ""):
        terminal.show(line)


def login_link() -> Exit:
    """Make a new one-time link that logs a browser in as admin, for 10 minutes; older ones end.

    For the server that runs on this data folder. On a terminal the link is printed, elsewhere the
    path of a file that has it.
    """
    settings = load_settings()
    with errors_as_failures():
        link = machine.create_login_link(settings)
    terminal = Display().terminal()
    terminal.show(link if terminal.width else str(machine.keep_login_link(settings, link)))
    return Exit.DONE


def shown_link(settings: Settings, link: str, terminal: Terminal) -> str:
    """Say where the login link is: printed on a terminal only, as logs are kept and read."""
    rota, _ = _rota_on(settings.home)
    how = f"(once, within 10 minutes; another: {rota} login-link)"
    if terminal.width:
        return f"open {link} {how}"
    return f"open the link in {machine.keep_login_link(settings, link)} {how}"


def _next_steps(home: Path, *, has_jobs: bool, app: str = "") -> Iterator[str]:
    rota, where = _rota_on(home)
    first = f"{rota} job list   or   " if has_jobs else ""
    if app and not has_jobs:  # its functions are served, but no job runs one
        first = f"{rota} apply --app {quote(app)}   or   "
    yield f"Next, {where}: {first}{rota} demo"


def _rota_on(home: Path) -> tuple[str, str]:
    """Return how to call this command so that it works as it stands, and where: it may be in no
    PATH."""
    rota = _as_called(Path(sys.argv[0]))
    if home.absolute() == Path(_FOUND_BY_ITSELF).absolute():
        return rota, "in another shell in this folder"
    return f"ROTA_HOME={quote(str(home.absolute()))} {rota}", "in another shell"


def _as_called(program: Path) -> str:
    """Return how a shell calls the program from here: by its name only where that leads to it."""
    found = shutil.which(program.name)
    if found and Path(found).absolute() == program.absolute():
        return program.name
    return quote(str(program))


_FOUND_BY_ITSELF = ".rota"  # the data folder in which clients look for a server
CART = "demo-upgrade"
DATABASES = 200
_LOOPBACK = ("http://127.", "http://localhost", "http://[::1]")
# Each database is "upgraded" by a short sleep. Five of them fail the first time they are tried: one
# more than 2 % of 200 allows. A second try finds the mark of the first, and completes.
_JOBS = r"""
set: rota-demo
defaults:
  isolation: process
jobs:
  - name: demo-heartbeat
    description: A short job by interval
    schedule: every 15s
    expect: 1s
    steps:
      - name: beat
        run: echo "alive at $ROTA_DUE_AT"
  - name: demo-report
    description: A job with steps, by cron
    schedule: "*/5 * * * *"
    steps:
      - {name: collect, run: "seq 1 200"}
      - {name: summarise, run: "echo 200 rows"}
  - name: demo-flaky
    description: Fails twice, then completes
    retry: {attempts: 3, delay: 2s}
    steps:
      - name: call
        run: |
          echo "attempt $ROTA_ATTEMPT"
          [ "$ROTA_ATTEMPT" -ge 3 ] || { echo "gateway answered 503" >&2; exit 1; }
  - name: demo-upgrade-db
    description: Pretends to upgrade one database
    expect: 1s
    inputs:
      host: {type: string}
      version: {type: string, default: "16.3"}
    steps:
      - name: upgrade
        run: |
          mark="${TMPDIR:-/tmp}/rota-demo-$ROTA_CART-$INPUT_HOST"
          echo "upgrading $INPUT_HOST to $INPUT_VERSION"
          sleep 0.3
          case "$INPUT_HOST" in
            db-031|db-047|db-062) problem="disk full on $INPUT_HOST" ;;
            db-044|db-071) problem="connection to $INPUT_HOST refused" ;;
            *) problem="" ;;
          esac
          if [ -n "$problem" ] && [ ! -e "$mark" ]; then
            : > "$mark"; echo "$problem" >&2; exit 1
          fi
          rm -f "$mark"
          echo "$INPUT_HOST runs $INPUT_VERSION"
"""


def demo(
    *,
    no_watch: Annotated[bool, Parameter(help="Do not follow the cart until it pauses.")] = False,
    options: Destroying = DESTROYING,
) -> Exit:
    """Fill a server of your own with jobs, history and an upgrade of 200 fake databases.

    The upgrade goes in waves of 1, 5, 20, …; 2 % may fail. One more does, and the cart pauses:
    look at what failed, retry it, and see it end.
    """
    with options.connect() as client:
        _require_own_server(client, options)
        if options.dry_run:
            options.rehearse(f"would apply 4 jobs and submit cart {CART}")
        cart = _fill(client)
        terminal = options.terminal()
        terminal.tell(f"4 jobs, some runs, and cart {cart}: {DATABASES} databases to upgrade")
        if no_watch:
            terminal.tell(f"rota cart watch {cart}")
            return Exit.DONE
        done = watch_cart(client, cart, options, timeout=None)
    if done is Exit.CART_PAUSED:
        terminal.tell("That was planned. Try:")
        terminal.tell(f"  rota cart show {cart}")
        terminal.tell(f"  rota cart retry {cart} --failed && rota cart resume {cart}")
        terminal.tell(f"  rota cart watch {cart}")
        return Exit.DONE
    return done


def _require_own_server(client: Client, options: Destroying) -> None:
    url = client.server.url
    if not options.yes and not url.startswith(_LOOPBACK):
        raise CommandFailed(
            f"{url} is not a server on this machine",
            code=Exit.USAGE,
            hint="rota demo --yes fills it all the same",
        )


def _fill(client: Client) -> str:
    """Apply the jobs, start some runs and submit the cart; return its id."""
    ask(client, Client.apply(_JOBS, name="rota-demo"))
    for job in ("demo-heartbeat", "demo-report", "demo-flaky"):
        ask(client, Client.trigger(job))
    items = [{"key": host, "with": {"host": host}} for host in map(_host, range(DATABASES))]
    document = {
        "name": CART,
        "description": "Upgrade of 200 databases that are not there",
        "job": "demo-upgrade-db",
        "order": "groups",
        "group_size": [1, 5, 20, "10%"],
        "max_parallel": 20,
        "failures": {"allow": "2%", "then": "pause"},
    }
    return ask(client, Client.submit_cart(document, items, count=len(items))).value.id


def _host(number: int) -> str:
    return f"db-{number + 1:03}"
