"""What the server answers about calendars."""

from __future__ import annotations

from rota.api.calendars import (
    Calendar,
    CalendarChange,
    CalendarDetail,
    CalendarWindow,
    CalendarWindows,
    Holidays,
)

__all__ = [
    "Calendar",
    "CalendarChange",
    "CalendarDetail",
    "CalendarWindow",
    "CalendarWindows",
    "Holidays",
]
