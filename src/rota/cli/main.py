"""Entry point, and every command by name.

Imports nothing heavy: `rota --help` must be fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import copy_context
from typing import NamedTuple

from rota import __version__


class Command(NamedTuple):
    name: str
    target: str  # module:attribute, imported only when the command is called
    summary: str


GROUPS: tuple[tuple[str, tuple[Command, ...]], ...] = (
    (
        "Start",
        (
            Command("up", "rota.cli.up:up", "Server and worker in one command, data in ./.rota"),
            Command("demo", "rota.cli.up:demo", "Jobs, history and a 200-item cart to look at"),
            Command("server", "rota.cli.servers:app", "Start a server of a cluster, show them all"),
            Command("worker", "rota.cli.workers:app", "Start a worker; list and drain them"),
        ),
    ),
    (
        "Define jobs",
        (
            Command("apply", "rota.cli.apply:app", "Create and update jobs from files"),
            Command("upload", "rota.cli.files:app", "Upload files that jobs and runs name"),
            Command("validate", "rota.cli.apply:validate", "Check job files without a server"),
            Command("import", "rota.cli.cron:import_app", "Turn a crontab into a job file"),
            Command("cron", "rota.cli.cron:app", "Explain a schedule, show its next times"),
            Command("calendar", "rota.cli.calendars:app", "Windows in which jobs do not run"),
            Command("limit", "rota.cli.limits:app", "Rate limits that runs keep to"),
            Command(
                "resource", "rota.cli.limits:resource_app", "Licences, locks … that runs share"
            ),
            Command("schema", "rota.cli.setup:schema", "JSON Schema of the job file"),
        ),
    ),
    (
        "Watch and operate",
        (
            Command("job", "rota.cli.jobs:app", "List, show, trigger, pause, delete … jobs"),
            Command("run", "rota.cli.runs:app", "List, show, watch, cancel, retry … runs"),
            Command("cart", "rota.cli.carts:app", "Roll a job out over many items, in order"),
            Command("trigger", "rota.cli.jobs:trigger", "Start a run now (= job trigger)"),
            Command("logs", "rota.cli.logs:logs", "What a run printed (= run logs)"),
            Command("why", "rota.cli.runs:why", "Why a run waits (= run why)"),
            Command("ps", "rota.cli.ps:ps", "Runs that are not over (= run list --active)"),
            Command(
                "forecast", "rota.cli.forecasts:forecast", "What starts when, and what runs out"
            ),
            Command("simulate", "rota.cli.simulations:app", "What if: workloads, more workers"),
            Command("events", "rota.cli.events:app", "What happened, as it happens"),
        ),
    ),
    (
        "Set up",
        (
            Command("login-link", "rota.cli.up:login_link", "A new link that logs a browser in"),
            Command("login", "rota.cli.logins:login", "Log in to a server as yourself"),
            Command("logout", "rota.cli.logins:logout", "End the session of rota login"),
            Command("project", "rota.cli.projects:app", "Tenants, and what they may ask for"),
            Command("role", "rota.cli.principals:app", "Who may do what in a project, or in all"),
            Command("principal", "rota.cli.principals:principal_app", "Users, groups and programs"),
            Command("pool", "rota.cli.projects:pool_app", "Which projects may use which workers"),
            Command("token", "rota.cli.tokens:app", "Create, list and revoke API tokens"),
            Command(
                "whoami", "rota.cli.tokens:whoami", "Who you are to the server, and your roles"
            ),
            Command("quota", "rota.cli.limits:quota_app", "What a project may have"),
            Command("share", "rota.cli.limits:share_app", "Who gets how much of busy workers"),
            Command("config", "rota.cli.setup:app", "Settings, and where each comes from"),
            Command("doctor", "rota.cli.setup:doctor", "Check what commonly goes wrong"),
            Command("completion", "rota.cli.setup:completion", "Tab completion for a shell"),
            Command("version", "rota.cli.setup:version", "Print the version"),
        ),
    ),
)

COMMANDS: tuple[Command, ...] = tuple(command for _, group in GROUPS for command in group)


def overview(version: str) -> str:
    """Return the page of all commands."""
    lines = [
        f"rota {version}: schedule jobs, and see why each one runs, waits or failed.",
        "",
        "Usage: rota COMMAND [OPTIONS]",
    ]
    width = max(len(command.name) for command in COMMANDS)
    for title, group in GROUPS:
        lines += ["", f"{title}:"]
        lines += [f"  {command.name.ljust(width)}  {command.summary}" for command in group]
    return "\n".join([*lines, "", "More: rota COMMAND --help", ""])


_OVERVIEW: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["help"], ["help", "--help"])
_VERSION = (["version"], ["--version"], ["-V"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in _OVERVIEW:
        sys.stdout.write(overview(__version__))
        return 0
    if words in _VERSION:
        sys.stdout.write(f"rota {__version__}\n")
        return 0
    if words[0] == "help":
        words = [*words[1:], "--help"]
    from rota.cli.program import run  # the parser takes longer to import than all of the above

    # In a context of its own: what options say about printing ends with the command.
    return copy_context().run(run, words)
