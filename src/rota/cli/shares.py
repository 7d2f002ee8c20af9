"""`rota share`: who gets how much of the workers while they are busy."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli.asking import ask, ask_all
from rota.cli.limits import SHARES
from rota.cli.options import REMOTE, WRITING, Remote, Writing
from rota.cli.printing import print_list, print_one
from rota.cli.terminal import inert
from rota.sdk.client import Client

app = App(name="share", help="Weights of shares, by which busy workers are divided: list, set.")


@app.command(name="list")
def list_(*, remote: Remote = REMOTE) -> None:
    """List the shares whose weight somebody has set; all others weigh 1."""
    with remote.connect() as client:
        listing = ask_all(client, Client.list_shares())
    print_list(remote, listing, SHARES)


@app.command(name="set")
def set_(
    share: Annotated[
        str,
        Parameter(help="A project, a user in it (PROJECT/USER), or the `share` that jobs name."),
    ],
    /,
    *,
    weight: Annotated[
        float,
        Parameter(metavar="N", validator=Number(gte=0.001, lte=1000), help="1 is the usual one."),
    ],
    writing: Writing = WRITING,
) -> None:
    """Set the weight of a share: twice the weight is twice the part of a busy pool."""
    if writing.dry_run:
        writing.rehearse(f"would set the weight of {share} to {weight:g}")
    with writing.connect() as client:
        saved = ask(client, Client.put_share(share, weight))
    print_one(
        writing,
        saved,
        name=lambda share: share.share,
        page=lambda terminal, share: terminal.tell(
            f"{inert(share.share)} weighs {share.weight:g} now"
        ),
    )
