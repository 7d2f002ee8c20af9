"""What is kept in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def bytes_kept_by(action: Callable[[], object]) -> int:
    """How much more memory is in use when it is done and its answer is gone."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
