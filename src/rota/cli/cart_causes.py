"""Causes of failures as people type them."""

from __future__ import annotations

from rota.cli.exits import CommandFailed, Exit
from rota.cli.inert import inert
from rota.sdk.cart_answers import CartDetail
from rota.sdk.errors import NotFound


def cause_named(cart: CartDetail, text: str) -> str:
    """The one cause of this cart's failures that is the text, or that has it in it."""
    causes = [group.cause for group in cart.failure_groups]
    if text in causes:
        return text
    near = [cause for cause in causes if text.casefold() in cause.casefold()]
    match near:
        case [only]:
            return only
        case []:
            known = "; ".join(causes) or "nothing failed"
            raise NotFound(f'no item of {cart.id} failed for "{text}"', hint=f"causes: {known}")
        case _:
            shown = "\n  ".join(map(inert, near))
            message = f'"{text}" is in several causes'
            raise CommandFailed(message, code=Exit.USAGE, hint=f"write one of them:\n  {shown}")
