"""Schedules that cannot be meant, and what whoever wrote them is told. One table for all doors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Refused:
    """Fields of a job, and a part of the message about them."""

    name: str
    message: str
    schedule: Any = "0 2 * * *"
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def job(self) -> dict[str, Any]:
        return {
            "name": "job",
            "steps": [{"run": "true"}],
            "schedule": self.schedule,
            **self.more,
        }

    @property
    def preview(self) -> tuple[list[str], str]:
        """Its expressions and its zone."""
        listed = self.schedule if isinstance(self.schedule, list) else [self.schedule]
        return listed, self.more.get("timezone", "UTC")

    @property
    def is_whole_without_a_job(self) -> bool:
        """Whether expressions and zone alone say what is wrong."""
        return bool(self.schedule) and self.more.keys() <= {"timezone"}


def _in_zone(name: str) -> dict[str, Any]:
    return {"timezone": name}


REFUSED = (
    Refused("unknown zone", 'no time zone "Mars/Olympus"', more=_in_zone("Mars/Olympus")),
    Refused("zone in other letters", "did you mean Europe/Berlin", more=_in_zone("europe/berlin")),
    Refused("zone as a path", 'no time zone "../../etc/passwd"', more=_in_zone("../../etc/passwd")),
    Refused("zone as a whole path", 'no time zone "/etc/passwd"', more=_in_zone("/etc/passwd")),
    Refused("February 30", "no date is day 30 of month 2", "0 0 30 2 *"),
    Refused("61 minutes", "minute 61 does not exist (0–59)", "61 * * * *"),
    Refused("hour 24", "hour 24 does not exist (0–23)", "0 24 * * *"),
    Refused("sixth Monday", "at most 5 of each", "0 0 * * MON#6"),
    Refused("step of nothing", "smallest step is 1", "*/0 * * * *"),
    Refused("empty list", "must have 1 to 20 entries", []),
    Refused("empty text", "must not be empty", ""),
    Refused("too short an interval", "smallest interval is 100ms", "every 50ms"),
    Refused("zone in the text", "timezone: Europe/London", "CRON_TZ=Europe/London 23 5 * * *"),
    Refused("a year", "no field stands for the year", "0 0 12 * * ? 2027"),
    Refused("words for two fields", "write ends: TIME", "every 10 seconds, until 2026-03-01"),
    Refused("200 terms", "terms, at most", ",".join(str(n % 60) for n in range(200)) + " * * * *"),
    Refused("year 10,000", "outside the years 1970 to 9999", "10000-01-01T00:00:00Z"),
    Refused(
        "ends before it starts",
        "ends before it starts",
        more={"starts": "2031-01-01T00:00:00Z", "ends": "2030-01-01T00:00:00Z"},
    ),
    Refused(
        "starts in the year 10,000",
        "must be an ISO 8601 time",
        more={"starts": "10000-01-01T00:00:00Z"},
    ),
)
