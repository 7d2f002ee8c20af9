"""Walls: what a run needs of its worker beyond a plain process, by the names of workers' offers.

A worker tries each wall when it starts and tells the server its *offers*: what worked, and for the
rest why not. A run names what it needs in the same words, `kind/name`.
"""

from __future__ import annotations

from enum import StrEnum


class OfferKind(StrEnum):
    WALL = "wall"  # a name of `Isolation`
    NETWORK = "network"  # `sandbox/none`, `container/outbound`, …
    LIMIT = "limit"  # a field of `RunLimits`
    RUN_AS = "run_as"  # a user whom runs of this worker may be
    TYPE = "type"  # a `JobType`
    REGISTRY = "registry"  # a login of its settings
    MOUNT = "mount"  # a root of what containers may see; `ROOT:ro` where they may only read
