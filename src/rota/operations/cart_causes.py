"""Causes of failures as people type them."""

from __future__ import annotations

from rota.domain.errors import Invalid, NotFound
from rota.operations.backends import Backends
from rota.ports.carts import Cart

_MOST_CAUSES = 1_000  # that are looked through
_CAUSES_SHOWN = 10


async def cause_meant(backends: Backends, cart: Cart, text: str | None) -> str | None:
    """The one cause of this cart's failures that is the text, or that has it in it; None: any."""
    if text is None:
        return None
    groups = await backends.store.failure_groups(cart.id, _MOST_CAUSES)
    causes = [group.cause for group in groups]
    if text in causes:
        return text
    near = [cause for cause in causes if text.casefold() in cause.casefold()]
    match near:
        case [only]:
            return only
        case []:
            raise NotFound(
                f'no item of {cart.id} failed for "{text}"',
                code="no_such_cause",
                hint=f"causes: {_shown(causes) or 'nothing failed'}",
            )
        case _:
            raise Invalid(
                f'"{text}" is in several causes',
                code="ambiguous_cause",
                hint=f"write one of them: {_shown(near)}",
            )


def _shown(causes: list[str]) -> str:
    return "; ".join(causes[:_CAUSES_SHOWN])
