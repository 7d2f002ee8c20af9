"""`rota resource`: licences, locks and the like, which runs share on whatever worker they are."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli.exits import CommandFailed, Exit
from rota.cli.limits import (
    RESOURCES,
    Declared,
    delete_declared,
    list_declared,
    set_declared,
    show_declared,
    write_resource,
)
from rota.cli.options import (
    DESTROYING,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Remote,
    WholeNumber,
    Writing,
)
from rota.cli.references import complete_resources
from rota.sdk.client import Client
from rota.sdk.limits import Kind

app = App(name="resource", help="Named resources that runs share: list, show, set, delete.")

Name = Annotated[str, Parameter(help="Name of a resource.", completer=complete_resources)]
_RESOURCE = Declared(
    "resource",
    Client.list_resources,
    Client.get_resource,
    Client.delete_resource,
    RESOURCES,
    write_resource,
)


@app.command(name="list")
def list_(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List named resources: what is in use, which runs hold it, and how many wait."""
    list_declared(remote, _RESOURCE, limit)


@app.command
def show(name: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a named resource: what is in use, which runs hold it, and how many wait."""
    show_declared(remote, _RESOURCE, name)


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
) -> Exit:
    """Create a named resource, or change it; runs that wait for it follow it at once."""
    if (total is not None) + mutex + read_write != 1:
        raise CommandFailed(
            "say what it is, in one way",
            code=Exit.USAGE,
            hint="--total N, --mutex or --read-write",
        )
    kind: Kind = "mutex" if mutex else "read_write" if read_write else "counted"
    call = Client.put_resource(name, total=total, kind=kind, plan=writing.dry_run)
    return set_declared(writing, f"resource {name}", call)


@app.command
def delete(name: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a named resource that no job uses."""
    delete_declared(destroying, _RESOURCE, name)
