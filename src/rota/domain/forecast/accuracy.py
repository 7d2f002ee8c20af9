"""How right earlier forecasts were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

NEAR = timedelta(seconds=2)
NEAR_SHARE = 0.1  # of the time ahead that was looked into


@dataclass(frozen=True, slots=True)
class Outcome:
    """A start that was predicted, and when it came."""

    made_at: datetime
    predicted: datetime
    actual: datetime

    @property
    def error(self) -> timedelta:
        return abs(self.actual - self.predicted)

    @property
    def is_near(self) -> bool:
        """Within 2 s, or within a tenth of the time that lay ahead."""
        return self.error <= max(NEAR, (self.actual - self.made_at) * NEAR_SHARE)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Predicted starts against real ones."""

    starts: int
    near: int
    usual_error: timedelta  # half of them were no more off than this
    high_error: timedelta  # nine in ten were no more off than this

    @property
    def share(self) -> float:
        """Of those that were near."""
        return self.near / self.starts


def accuracy_of(outcomes: Iterable[Outcome]) -> Accuracy | None:
    """None: nothing was predicted that has started since."""
    known = list(outcomes)
    if not known:
        return None
    errors = sorted(each.error for each in known)
    return Accuracy(
        starts=len(known),
        near=sum(each.is_near for each in known),
        usual_error=errors[(len(errors) - 1) // 2],
        high_error=errors[(len(errors) - 1) * 9 // 10],
    )
