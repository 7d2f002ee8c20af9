"""`rota limit`: how many tokens runs may take in a time."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli import times
from rota.cli.asking import ask, ask_list
from rota.cli.completers import complete_limits
from rota.cli.declaring import is_agreed, set_declared
from rota.cli.durations import Duration
from rota.cli.inert import inert
from rota.cli.limit_views import LIMITS, write_limit
from rota.cli.options import DESTROYING, REMOTE, WRITING, Destroying, Limit, Remote, Writing
from rota.cli.printing import print_list, print_one
from rota.cli.whole_numbers import WholeNumber
from rota.sdk import limit_calls

app = App(name="limit", help="Rate limits, as token buckets: list, show, set, delete.")

Name = Annotated[str, Parameter(help="Name of a limit.", completer=complete_limits)]
Tokens = Parameter(validator=Number(gte=1))


@app.command(name="list")
def list_(*, limit: Limit = 100, remote: Remote = REMOTE) -> None:
    """List rate limits: the tokens there are, when the next comes, and how many runs wait."""
    with remote.connect() as client:
        listing = ask_list(client, limit_calls.list_limits(), limit=limit)
    print_list(remote, listing, LIMITS)


@app.command
def show(name: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a rate limit: the tokens there are, when the next comes, and how many runs wait."""
    with remote.connect() as client:
        found = ask(client, limit_calls.get_limit(name))
    print_one(
        remote,
        found,
        name=lambda limit: limit.name,
        page=lambda terminal, limit: write_limit(terminal, limit, times.now()),
    )


@app.command(name="set")
def set_(
    name: Name,
    /,
    *,
    tokens: Annotated[WholeNumber, Tokens, Parameter(help="How many tokens come.")],
    per: Annotated[Duration, Parameter(help="The time in which they come (1s, 1m).")],
    burst: Annotated[
        WholeNumber | None,
        Tokens,
        Parameter(help="How many may be taken at once after a rest. Default: as many as --tokens."),
    ] = None,
    each: Annotated[
        Literal["job", "user", "project"] | None,
        Parameter(
            help="Every run of the project takes a token, and each of these has tokens of its own. "
            "Default: only jobs that name the limit, which share them."
        ),
    ] = None,
    writing: Writing = WRITING,
) -> None:
    """Create a rate limit, or change it; runs that wait for it follow it at once."""
    call = limit_calls.put_limit(
        name, tokens=tokens, per=per, burst=burst, each=each, plan=writing.dry_run
    )
    set_declared(writing, f"limit {name}", call)


@app.command
def delete(name: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a rate limit; runs that wait for it are let go."""
    with destroying.connect() as client:
        found = client.get_limit(name)
        if is_agreed(destroying, f"delete limit {found.name}"):
            client.delete_limit(found.name)
            destroying.terminal().tell(f"deleted limit {inert(found.name)}")
