"""`rota limit`: how many tokens runs may take in a time."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli.completers import complete_limits
from rota.cli.declaring import (
    Declared,
    delete_declared,
    list_declared,
    set_declared,
    show_declared,
)
from rota.cli.durations import Duration
from rota.cli.limit_views import LIMITS, write_limit
from rota.cli.options import DESTROYING, REMOTE, WRITING, Destroying, Limit, Remote, Writing
from rota.cli.whole_numbers import WholeNumber
from rota.sdk import limit_calls

app = App(name="limit", help="Rate limits, as token buckets: list, show, set, delete.")

Name = Annotated[str, Parameter(help="Name of a limit.", completer=complete_limits)]
Tokens = Parameter(validator=Number(gte=1))
_LIMIT = Declared(
    "limit",
    limit_calls.list_limits,
    limit_calls.get_limit,
    limit_calls.delete_limit,
    LIMITS,
    write_limit,
)


@app.command(name="list")
def list_(*, limit: Limit = 100, remote: Remote = REMOTE) -> None:
    """List rate limits: the tokens there are, when the next comes, and how many runs wait."""
    list_declared(remote, _LIMIT, limit)


@app.command
def show(name: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a rate limit: the tokens there are, when the next comes, and how many runs wait."""
    show_declared(remote, _LIMIT, name)


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
    delete_declared(destroying, _LIMIT, name)
