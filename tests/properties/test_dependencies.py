"""Rings among jobs that follow one another are found, whatever they look like."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.gates import cycle_text, find_cycle

NAMES = st.sampled_from("abcdefgh")
EDGES = st.dictionaries(NAMES, st.sets(NAMES))


def is_orderable(edges: dict[str, set[str]]) -> bool:
    """Whether all jobs can be done one after another: the other way to tell."""
    left = {name: set(followed) for name, followed in edges.items()}
    while ready := [name for name, followed in left.items() if not followed & left.keys()]:
        for name in ready:
            del left[name]
    return not left


@given(edges=EDGES)
def test_there_is_a_ring_exactly_if_the_jobs_cannot_be_put_in_order(
    edges: dict[str, set[str]],
) -> None:
    assert (find_cycle(edges) is None) == is_orderable(edges)


@given(edges=EDGES)
def test_a_ring_that_is_found_is_one(edges: dict[str, set[str]]) -> None:
    cycle = find_cycle(edges)

    if cycle is not None:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        assert all(upstream in edges[job] for job, upstream in pairwise(cycle))


def test_a_ring_is_told_from_job_to_job() -> None:
    cycle = find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]})

    assert cycle is not None
    assert cycle_text(cycle) == "b → c → b"


def test_long_chains_are_walked_too() -> None:
    chain = {str(number): [str(number + 1)] for number in range(50_000)}

    assert find_cycle(chain) is None
    assert find_cycle({**chain, "50000": ["0"]}) is not None
