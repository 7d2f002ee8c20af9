"""Deterministic universes: servers and workers in virtual time, with everything going wrong.

A seed decides all of it, so a seed that fails fails again. The parts that decide are the real ones:
the domain, the dispatcher, the worker's book; in a world on SQLite the scheduler and the store too.
"""

from __future__ import annotations

from testkit.universes.evidence import Violation, Witness
from testkit.universes.exploring import WORLDS, explore, visit

__all__ = ["WORLDS", "Violation", "Witness", "explore", "visit"]
