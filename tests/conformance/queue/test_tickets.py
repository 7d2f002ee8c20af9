from __future__ import annotations

import pytest

from rota.ports.queue import MAX_NAMED
from tests.conformance.queue.conftest import SOON, Nodes, receive, run_id

pytestmark = pytest.mark.anyio


async def test_an_offer_reaches_a_taker(nodes: Nodes) -> None:
    taker = nodes.there.takes("default")

    ticket = await receive(taker, lambda: nodes.here.offer("default", [run_id(1), run_id(2)]))
    taker.done(ticket)

    assert ticket.runs == (run_id(1), run_id(2))
    assert ticket.is_sole == nodes.is_sole
    taker.close()


async def test_an_offer_without_names_says_that_there_is_work(nodes: Nodes) -> None:
    taker = nodes.there.takes("default")

    ticket = await receive(taker, lambda: nodes.here.offer("default"))

    assert ticket.runs == ()
    taker.close()


async def test_offers_of_other_pools_do_not_concern_it(nodes: Nodes) -> None:
    taker, other = nodes.there.takes("a"), nodes.there.takes("b")
    nodes.here.offer("a", [run_id(1)])

    ticket = await receive(other, lambda: nodes.here.offer("b", [run_id(2)]))

    assert ticket.runs == (run_id(2),)
    taker.close()
    other.close()


async def test_what_was_offered_meanwhile_is_one_ticket(nodes: Nodes) -> None:
    taker = nodes.here.takes("default")
    first = await receive(taker, lambda: nodes.here.offer("default", [run_id(0)]))
    taker.done(first)
    for number in range(1, 300):
        nodes.here.offer("default", [run_id(number)])

    named: set[str] = set()
    tickets = 0
    while len(named) < 299 and (ticket := await taker.take(SOON * 50)):
        named |= set(ticket.runs) - {run_id(0)}
        tickets += 1
        taker.done(ticket)

    assert named == {run_id(number) for number in range(1, 300)}
    assert tickets < 20
    taker.close()


async def test_too_many_runs_are_not_named(nodes: Nodes) -> None:
    taker = nodes.here.takes("default")
    runs = [run_id(number) for number in range(MAX_NAMED + 1)]

    ticket = await receive(taker, lambda: nodes.here.offer("default", runs))

    assert ticket.runs == ()
    taker.close()


async def test_a_ticket_that_was_passed_on_reaches_another_taker(nodes: Nodes) -> None:
    first, second = nodes.here.takes("default"), nodes.there.takes("default")
    ticket = await receive(first, lambda: nodes.here.offer("default", [run_id(1)]))

    first.pass_on(ticket)

    again = await second.take(SOON * 100)
    assert again is not None
    assert again.runs == (run_id(1),)
    first.close()
    second.close()


async def test_without_offers_the_time_passes(nodes: Nodes) -> None:
    taker = nodes.here.takes("default")

    assert await taker.take(SOON) is None
    taker.close()
    taker.close()


@pytest.mark.parametrize("pool", ["*", ">", "a.b", "a b/c", "ü☃", "p" * 500])
async def test_a_pool_may_have_any_name(nodes: Nodes, pool: str) -> None:
    taker, other = nodes.there.takes(pool), nodes.there.takes(f"{pool}x")

    ticket = await receive(taker, lambda: nodes.here.offer(pool, [run_id(1)]))

    assert ticket.runs == (run_id(1),)
    assert await other.take(SOON) is None
    taker.close()
    other.close()
