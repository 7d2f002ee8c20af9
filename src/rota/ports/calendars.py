"""Calendars as the store keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.calendars import Calendar


@dataclass(frozen=True, slots=True)
class StoredCalendar:
    """A calendar of a project."""

    project: str
    calendar: Calendar
    version: int
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewCalendar:
    """A calendar to create, or a new version of one."""

    project: str
    calendar: Calendar
    expected_version: int = 0  # the version this replaces; 0: it must not exist
