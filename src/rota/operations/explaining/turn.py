"""A run's turn in the order of service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.domain.ids import RunId
from rota.domain.order import BOOST_SECONDS, Chain, share_of
from rota.domain.run import Reason
from rota.domain.turns import latest_turn, turns_before
from rota.operations.explaining.explanation import NotReason, OrderOfService
from rota.operations.stamps import stamp
from rota.ports.places import Place, Reserved


def order_of_service(place: Place) -> OrderOfService:
    """Who goes before it, found by the code that claims; of a blocked run: if it were queued."""
    own = place.line
    before = turns_before(own, place.in_line, place.cost, place.lines)
    chains = {line.chain.id: line.chain for line in place.lines}
    higher = [id_ for id_, chain in chains.items() if chain.priority > own.priority]
    of_higher_priority = sum(before[id_] for id_ in higher)
    position = sum(before.values())
    together = [own, *chains.values()]
    return OrderOfService(
        position=position,
        of_higher_priority=of_higher_priority,
        of_own_line=place.in_line,
        of_other_shares=position - of_higher_priority - place.in_line,
        latest_turn=latest_turn(place.older),
        share=place.share,
        tag=own.tag,
        virtual_time=min(chain.tag for chain in together if chain.priority == own.priority),
        cost=place.cost,
        boost=own.priority * BOOST_SECONDS,
        weight=own.weight,
        entitled=_weight(c for c in together if share_of(c.id) == place.share) / _weight(together),
        used=place.used,
        reservation=place.reservation,
    )


def turn_reason(order: OrderOfService) -> Reason | None:
    """Who goes before a queued run; None: nobody does."""
    if not order.position:
        return None
    groups = (
        (order.of_higher_priority, "of a higher priority"),
        (order.of_own_line, f"of {order.share} came before it"),
        (order.of_other_shares, "of other shares"),
    )
    words = [f"{count:,} {whose}" for count, whose in groups if count]
    verb = "run goes" if order.position == 1 else "runs go"
    message = f"{order.position:,} {verb} first: {', '.join(words)}"
    return Reason("order", message, action="rota share list")


def reservation_reason(run: RunId, reserved: Reserved | None) -> Reason | None:
    """For whom a worker of the pool is kept free; None: for nobody."""
    if reserved is None:
        return None
    whom = "it" if reserved.run == run else reserved.run
    message = f"worker {reserved.worker} is kept free for {whom} until {stamp(reserved.until)}"
    return Reason("reservation", message, action=f"rota why {reserved.run}")


def not_reasons(order: OrderOfService) -> Iterator[NotReason]:
    """What of the order does not hold it."""
    if not order.position:
        yield NotReason("priority", "first in queue")
    elif not order.of_higher_priority:
        yield NotReason("priority", "nobody with a higher one goes first")
    if not order.of_other_shares:
        at = order.used / order.entitled
        yield NotReason("fair share", f"{order.share} at {at:.1f} of its share")


def _weight(chains: Iterable[Chain]) -> float:
    return sum(chain.weight for chain in chains)
