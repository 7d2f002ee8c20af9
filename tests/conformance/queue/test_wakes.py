from __future__ import annotations

from datetime import timedelta

import pytest

from rota.ports.queue import EVENTS, OUTPUT, output
from tests.conformance.queue.conftest import SOON, Nodes, hear

pytestmark = pytest.mark.anyio
NO_TIME = timedelta(0)
HOSTILE = ["*", ">", "a.b", "a b", "", "\n", "ü☃", "$JS.API", "x" * 3_000, "'; NOTIFY x; --"]


async def test_whoever_listens_hears(nodes: Nodes) -> None:
    listener = nodes.there.listen(EVENTS)

    assert await hear(listener, lambda: nodes.here.announce(EVENTS, "r_1")) == {"r_1"}


async def test_a_node_hears_itself_at_once(nodes: Nodes) -> None:
    listener = nodes.here.listen(EVENTS)

    nodes.here.announce(EVENTS, "r_1")

    assert await listener.wait(NO_TIME) == {"r_1"}
    assert await listener.wait(SOON) == frozenset()  # and only once


async def test_every_listener_hears_of_each_of_its_topics(nodes: Nodes) -> None:
    both, one = nodes.there.listen("a", "b"), nodes.there.listen("b")
    await hear(both, lambda: nodes.here.announce("a", "first"))

    heard = await hear(one, lambda: nodes.here.announce("b", "second"))

    assert heard == {"second"}
    assert "second" in await both.wait(SOON)


async def test_what_was_announced_meanwhile_is_heard_together(nodes: Nodes) -> None:
    listener = nodes.here.listen(EVENTS)
    for number in range(1_000):
        nodes.here.announce(EVENTS, str(number % 10))

    heard = await listener.wait(NO_TIME)

    assert heard == {str(number) for number in range(10)}
    assert await listener.wait(SOON) == frozenset()


async def test_many_payloads_reach_other_nodes(nodes: Nodes) -> None:
    listener = nodes.there.listen(EVENTS)
    await hear(listener, lambda: nodes.here.announce(EVENTS, "ready"))
    expected = {f"r_{number:026}" for number in range(2_000)}
    for payload in expected:
        nodes.here.announce(EVENTS, payload)

    heard: set[str] = set()
    while not heard >= expected and (more := await listener.wait(SOON * 50)):
        heard |= more

    assert heard >= expected


async def test_nothing_is_heard_when_nothing_was_announced(nodes: Nodes) -> None:
    assert await nodes.here.listen(EVENTS).wait(NO_TIME) == frozenset()


async def test_a_closed_listener_hears_nothing_and_closes_twice(nodes: Nodes) -> None:
    listener, other = nodes.here.listen(EVENTS), nodes.here.listen(EVENTS)
    listener.close()
    listener.close()

    nodes.here.announce(EVENTS, "r_1")

    assert await other.wait(SOON) == {"r_1"}
    assert await listener.wait(NO_TIME) == frozenset()


async def test_a_topic_is_watched_while_somebody_here_listens(nodes: Nodes) -> None:
    before = nodes.here.watched(OUTPUT)
    listener = nodes.here.listen(output("r_1"))
    during = nodes.here.watched(OUTPUT)
    listener.close()

    assert (before, during, nodes.here.watched(OUTPUT)) == (
        frozenset(),
        frozenset({output("r_1")}),
        frozenset(),
    )


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_topic_may_have_any_name(nodes: Nodes, name: str) -> None:
    listener = nodes.there.listen(name)
    other = nodes.there.listen(f"{name}x", "y")
    await hear(other, lambda: nodes.here.announce("y"))

    heard = await hear(listener, lambda: nodes.here.announce(name, name))

    assert heard == {name}
    assert await other.wait(SOON) <= {""}


async def test_a_closed_queue_can_still_be_told(nodes: Nodes) -> None:
    await nodes.here.close()

    nodes.here.announce(EVENTS)
    nodes.here.offer("default", ["r_1"])
