"""Deterministic universes: servers and workers in virtual time, with everything going wrong.

A seed decides all of it, so a failing seed fails again. The parts that decide are the real ones:
the domain, the store on SQLite, the scheduler, the dispatcher, the worker's tracking of attempts.
"""

from __future__ import annotations

from testkit.universes.evidence import Violation, Witness
from testkit.universes.universe import explore, visit

__all__ = ["Violation", "Witness", "explore", "visit"]
