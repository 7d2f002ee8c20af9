"""The place that a waiting run is told is the one at which it is served."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.order import Chain, QueuedChain, allot, turns_before

COST = 1.0
MANY = 200  # runs in each line: more than are ever served before one of the first ones


@st.composite
def lines(draw: st.DrawFn) -> list[Chain]:
    """Lines whose places and steps are exact numbers, so that ties are ties."""
    count = draw(st.integers(1, 5))
    return [
        Chain(
            id=f"pool/{(priority := draw(st.integers(0, 2)))}/{number}",
            priority=priority,
            tag=draw(st.integers(0, 80)) / 4,
            weight=draw(st.sampled_from([0.5, 1.0, 2.0])),
        )
        for number in range(count)
    ]


def served_before(chains: list[Chain], own: str, in_chain: int) -> dict[str, int]:
    """Who is served before a run, found by serving one after another."""
    slots = 0
    while (shares := dict(allot(chains, slots + 1, COST))).get(own, 0) <= in_chain:
        slots += 1
    return {chain.id: shares.get(chain.id, 0) - (chain.id == own) for chain in chains}


@given(chains=lines(), in_chain=st.integers(0, 5), data=st.data())
def test_turns_are_those_of_the_order_of_service(
    chains: list[Chain], in_chain: int, data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(chains))
    others = [QueuedChain(chain, MANY, COST) for chain in chains if chain is not own]

    before = turns_before(own, in_chain, COST, others)

    assert before == served_before(chains, own.id, in_chain)


@given(chains=lines(), queued=st.integers(0, 3))
def test_no_line_has_more_turns_than_runs(chains: list[Chain], queued: int) -> None:
    own, *others = chains

    before = turns_before(own, 4, COST, [QueuedChain(chain, queued, COST) for chain in others])

    assert before.pop(own.id) == 4
    assert all(0 <= turns <= queued for turns in before.values())
