"""What can be said about a store without opening it as a server would: nothing is written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreInspection:
    place: str  # where it is, without secrets
    schema: int  # number of its latest migration; 0: it has none yet
    now: int | None  # its clock, in microseconds; None: it cannot say
    damage: str = ""  # "": it looks whole
    is_pooled: bool = False  # whether somebody stands between who may mix up connections
