"""Objects that every part of a universe can reach."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from testkit.universes.evidence import Witness
from testkit.universes.network import Network
from testkit.universes.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Surroundings:
    timeline: Timeline
    network: Network
    witness: Witness
    random: Random  # the only one: the order of draws is part of the story
