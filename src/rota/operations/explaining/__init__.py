"""Why a run is not running, in words a person can act on.

Each gate of a waiting run is looked at as it stands now; what was written down when the run came to
it says only which gates these are.
"""

from rota.operations.explaining.empty_pools import see_run, see_runs
from rota.operations.explaining.explanation import (
    Explanation,
    Holder,
    NotReason,
    Obstacle,
    OrderOfService,
)
from rota.operations.explaining.reasons import in_short, why

__all__ = [
    "Explanation",
    "Holder",
    "NotReason",
    "Obstacle",
    "OrderOfService",
    "in_short",
    "see_run",
    "see_runs",
    "why",
]
