"""`rota quota`: what a project may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from rota.api.limits import Quota
from rota.cli import times
from rota.cli.asking import ask
from rota.cli.exits import CommandFailed, Exit
from rota.cli.limits import require_consent, set_declared, write_quota
from rota.cli.options import DESTROYING, REMOTE, WRITING, Destroying, Remote, Writing
from rota.cli.printing import print_one
from rota.cli.terminal import inert
from rota.sdk.client import Client

if TYPE_CHECKING:
    from cyclopts import Token

app = App(name="quota", help="What a project may have: show, set, clear.")

UNLIMITED = "unlimited"


def _number(_: type, tokens: Sequence[Token]) -> int | str:
    text = tokens[0].value
    try:
        return text if text == UNLIMITED else int(text)
    except ValueError:
        raise ValueError(f'"{text}" is neither a whole number nor {UNLIMITED}') from None


def _size(kind: type, tokens: Sequence[Token]) -> int | str:
    text = tokens[0].value
    if text == UNLIMITED or text.isdecimal():
        return _number(kind, tokens)
    from rota.runtime.offline import parse_size  # not for those who give no size

    return parse_size(text)


Most = int | str | None  # None: as it is
_NUMBER = Parameter(metavar="N", converter=_number)
_SIZE = Parameter(metavar="SIZE", converter=_size)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be different."""

    running: Annotated[Most, _NUMBER, Parameter(help="Runs at a time.")] = None
    queued: Annotated[Most, _NUMBER, Parameter(help="Runs that wait; more are refused.")] = None
    runs_per_minute: Annotated[Most, _NUMBER, Parameter(help="Runs started a minute.")] = None
    output_bytes_per_day: Annotated[
        Most, _SIZE, Parameter(help="Output of all runs in a day, such as 10GiB.")
    ] = None
    jobs: Annotated[Most, _NUMBER, Parameter(help="Jobs.")] = None

    def of(self, quota: Quota) -> dict[str, int | None]:
        """The whole quota with them."""
        return {
            name: getattr(quota, name) if most is None else None if most == UNLIMITED else most
            for name, most in asdict(self).items()
        }


_AS_IT_IS = Changes()


@app.command
def show(*, remote: Remote = REMOTE) -> None:
    """Show the quota of a project, and what it has of it."""
    with remote.connect() as client:
        found = ask(client, Client.get_quota())
    print_one(
        remote,
        found,
        name=lambda quota: quota.project,
        page=lambda terminal, quota: write_quota(terminal, quota, times.now()),
    )


@app.command(name="set")
def set_(*, changes: Changes = _AS_IT_IS, writing: Writing = WRITING) -> Exit:
    """Change the quota of a project; what is not named stays, `unlimited` takes a number away."""
    if changes == _AS_IT_IS:
        hint = "--running, --queued, --runs-per-minute, --output-bytes-per-day or --jobs"
        raise CommandFailed("say what is to be different", code=Exit.USAGE, hint=hint)
    with writing.connect() as client:
        quota = client.get_quota()
    call = Client.put_quota(**changes.of(quota), plan=writing.dry_run)
    return set_declared(writing, f"quota of project {quota.project}", call)


@app.command
def clear(*, destroying: Destroying = DESTROYING) -> None:
    """Let a project have as much as it likes."""
    with destroying.connect() as client:
        project = client.get_quota().project
        require_consent(destroying, f"clear the quota of project {project}")
        client.delete_quota()
    destroying.terminal().tell(f"cleared the quota of project {inert(project)}")
