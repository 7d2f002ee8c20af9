"""What every part of a universe can reach."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from rota.testing.universes.evidence import Witness
from rota.testing.universes.network import Network
from rota.testing.universes.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Surroundings:
    timeline: Timeline
    network: Network
    witness: Witness
    random: Random  # the only one: the order of draws is part of the story
