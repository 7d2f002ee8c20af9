"""When a job's schedule is stuck: due times come, and nothing of the job gets to start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

MOST_WAITING = 100
LONGEST_WAIT = timedelta(hours=1)
_TIMES_EXPECTED = 10  # a job that takes long may be waited for longer


@dataclass(frozen=True, slots=True)
class Congestion:
    """The scheduled runs of a job whose time has come and that are not final."""

    waiting: int  # held back by other runs of the job
    is_skipping: bool  # the newest one was skipped because of them
    oldest_release_at: datetime  # when the first of them was let go: a calendar may have kept it
    expected_seconds: float | None  # None: no run has ended yet

    @property
    def is_holding_back(self) -> bool:
        """Whether a run of the job keeps another one from starting."""
        return self.waiting > 0 or self.is_skipping


def is_stuck(congestion: Congestion, now: datetime) -> bool:
    """Whether a person should look: too many wait, or they wait for one that does not end."""
    if congestion.waiting > MOST_WAITING:
        return True
    patience = max(
        LONGEST_WAIT, timedelta(seconds=congestion.expected_seconds or 0) * _TIMES_EXPECTED
    )
    return congestion.is_holding_back and now - congestion.oldest_release_at > patience
