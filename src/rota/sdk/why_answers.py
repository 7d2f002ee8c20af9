"""What the server says about a run that waits."""

from __future__ import annotations

from rota.api.why import Holder, NotReason, Obstacle, OrderOfService, Reserved, Why

__all__ = [
    "Holder",
    "NotReason",
    "Obstacle",
    "OrderOfService",
    "Reserved",
    "Why",
]
