"""What setting and deleting limits, resources and quotas have in common."""

from __future__ import annotations

from rota.cli.asking import ask
from rota.cli.change_views import write_change
from rota.cli.inert import inert
from rota.cli.options import Destroying, Writing
from rota.cli.printing import print_one
from rota.sdk.exchange import Call
from rota.sdk.limit_answers import DeclarationChange


def set_declared(writing: Writing, what: str, call: Call[DeclarationChange]) -> None:
    """Save it and say what that changed."""
    with writing.connect() as client:
        change = ask(client, call)
    print_one(
        writing,
        change,
        name=lambda change: change.name,
        page=lambda terminal, change: write_change(terminal, what, change),
    )


def is_agreed(destroying: Destroying, what: str) -> bool:
    """Whether to do it: not in a rehearsal, and not without somebody's consent."""
    terminal = destroying.terminal()
    if destroying.dry_run:
        terminal.tell(inert(f"would {what}"))
        return False
    terminal.confirm(inert(f"{what}?"), yes=destroying.yes, otherwise="add --yes to do it")
    return True
