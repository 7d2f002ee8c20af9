"""Why a run is not running, in words a person can act on.

Each gate of a waiting run is looked at as it stands now; what was written down when the run came to
it says only which gates these are.
"""

from rota.operations.explaining.explanation import (
    Explanation,
    Holder,
    Obstacle,
    OrderOfService,
    Surplus,
)
from rota.operations.explaining.why import in_short, why

__all__ = ["Explanation", "Holder", "Obstacle", "OrderOfService", "Surplus", "in_short", "why"]
