"""The nemesis forgets no kind of fault, heals all of them, and notes which were felt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random

import pytest

from testkit.chaos.faults import Fault
from testkit.chaos.nemesis import Maker, Nemesis, Pace
from testkit.nodes import Node

AT_ONCE = Pace(timedelta(0), timedelta(milliseconds=1), (0.0, 0.0))
LONG_AGO = 0.0


class Scratch(Fault):
    """Harms nobody, and watches over what happens at the same time."""

    least = timedelta(0)
    lasting: list[Scratch]

    def __init__(self, kind: str, target: str, lasting: list[Scratch], *, felt: bool) -> None:
        super().__init__(target)
        self.kind = kind
        self.lasting = lasting
        self._felt = felt

    def inject(self) -> str:
        assert self.target not in {fault.target for fault in self.lasting}
        self.lasting.append(self)
        return "scratched"

    def is_felt(self) -> bool:
        return self._felt

    def heal(self) -> None:
        self.lasting.remove(self)


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_comes_once_is_healed_and_never_meets_another_at_its_target(seed: int) -> None:
    lasting: list[Scratch] = []
    kinds = [(f"kind-{number}", f"node-{number % 3}") for number in range(10)]
    deck = [partial(Scratch, kind, target, lasting, felt=True) for kind, target in kinds]
    told: list[str] = []
    nemesis = Nemesis(deck, Random(seed), told.append, AT_ONCE)

    nemesis.walk(LONG_AGO)

    assert sorted(each.kind for each in nemesis.log) == [kind for kind, _ in kinds]
    assert all(each.was_felt and each.healed >= each.began for each in nemesis.log)
    assert lasting == []
    assert len(told) == len(kinds)


def test_a_fault_that_nobody_felt_is_tried_again_and_noted() -> None:
    told: list[str] = []
    deck = [lambda: Scratch("dull", "node", [], felt=False)]

    nemesis = Nemesis(deck, Random(1), told.append, AT_ONCE)
    nemesis.walk(LONG_AGO)

    assert [each.was_felt for each in nemesis.log] == [False] * 3
    assert "not felt" in told[0]


class Sleeper(Node):
    """A node that does nothing, for as long as it lives."""

    def wait_until_ready(self) -> None:
        pass


class Stopped(Scratch):
    """A fault that stops a node, and starts it again."""

    def __init__(self, node: Node) -> None:
        super().__init__("stopped", node.name, [], felt=True)
        self._node = node

    def inject(self) -> str:
        self._node.stop()
        return super().inject()

    def heal(self) -> None:
        self._node.launch()
        super().heal()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Sleeper("node-1", tmp_path / "node-1", [], {})
    node.command = ["sleep", "600"]
    node.launch()
    yield node
    node.process.kill()
    node.process.wait()


def test_a_node_that_ended_by_itself_is_noted_before_a_fault_hides_it(node: Node) -> None:
    told: list[str] = []
    node.process.kill()
    node.process.wait()
    nemesis = Nemesis([partial(Stopped, node)], Random(1), told.append, AT_ONCE)

    nemesis.walk(LONG_AGO, [node])

    assert nemesis.ended == ["node-1"]
    assert "node-1 has ended by itself" in told


@pytest.mark.parametrize("seed", range(5))
def test_a_node_that_a_fault_has_stopped_is_not_blamed(node: Node, seed: int) -> None:
    lasting: list[Scratch] = []
    deck: list[Maker] = [
        partial(Stopped, node),
        partial(Scratch, "other", "elsewhere", lasting, felt=True),
    ]
    nemesis = Nemesis(deck, Random(seed), lambda _: None, AT_ONCE)

    nemesis.walk(LONG_AGO, [node])

    assert nemesis.ended == []
