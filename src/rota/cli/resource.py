"""`rota resource`: licences, locks and the like, which runs share on whatever worker they are."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli import times
from rota.cli.asking import ask, ask_list
from rota.cli.completers import complete_resources
from rota.cli.declaring import is_agreed, set_declared
from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert
from rota.cli.limit_views import RESOURCES, write_resource
from rota.cli.options import DESTROYING, REMOTE, WRITING, Destroying, Limit, Remote, Writing
from rota.cli.printing import print_list, print_one
from rota.cli.whole_numbers import WholeNumber
from rota.sdk import limit_calls

app = App(name="resource", help="Named resources that runs share: list, show, set, delete.")

Name = Annotated[str, Parameter(help="Name of a resource.", completer=complete_resources)]


@app.command(name="list")
def list_(*, limit: Limit = 100, remote: Remote = REMOTE) -> None:
    """List named resources: what is in use, which runs hold it, and how many wait."""
    with remote.connect() as client:
        listing = ask_list(client, limit_calls.list_resources(), limit=limit)
    print_list(remote, listing, RESOURCES)


@app.command
def show(name: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a named resource: what is in use, which runs hold it, and how many wait."""
    with remote.connect() as client:
        found = ask(client, limit_calls.get_resource(name))
    print_one(
        remote,
        found,
        name=lambda resource: resource.name,
        page=lambda terminal, resource: write_resource(terminal, resource, times.now()),
    )


@app.command(name="set")
def set_(
    name: Name,
    /,
    *,
    total: Annotated[
        WholeNumber | None,
        Parameter(validator=Number(gte=1), help="How many units there are."),
    ] = None,
    mutex: Annotated[bool, Parameter(help="One run has it at a time.")] = False,
    read_write: Annotated[bool, Parameter(help="Many runs read, or one writes.")] = False,
    writing: Writing = WRITING,
) -> None:
    """Create a named resource, or change it; runs that wait for it follow it at once."""
    if (total is not None) + mutex + read_write != 1:
        raise CommandFailed(
            "say what it is, in one way",
            code=Exit.USAGE,
            hint="--total N, --mutex or --read-write",
        )
    kind: limit_calls.Kind = "mutex" if mutex else "read_write" if read_write else "counted"
    call = limit_calls.put_resource(name, total=total, kind=kind, plan=writing.dry_run)
    set_declared(writing, f"resource {name}", call)


@app.command
def delete(name: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a named resource that no job uses."""
    with destroying.connect() as client:
        found = client.get_resource(name)
        if is_agreed(destroying, f"delete resource {found.name}"):
            client.delete_resource(found.name)
            destroying.terminal().tell(f"deleted resource {inert(found.name)}")
