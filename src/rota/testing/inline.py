"""An app's jobs without a server: functions run in the test itself, and time moves when told.

    with inline(app, now="2026-03-28T02:30", tz="Europe/Berlin") as t:
        t.advance("1d")
        assert t.submitted("nightly_backup") == 1
        assert t.runs[-1].state == "COMPLETED"

Due times, inputs and retries follow the rules of the real server. Runs take no time, so nothing
overlaps or times out; gates, priorities and workers are not there.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import count
from typing import Any, TypeVar

from rota.domain.durations import parse_duration
from rota.domain.jobfile import parse_inputs, read_job
from rota.domain.retry import Ending, Verdict, attempt_ended
from rota.domain.run import AttemptResult
from rota.domain.schedule import Timetable, compile_schedule
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import JobSpec
from rota.domain.states import FINAL_STATES, RunState
from rota.sdk.answers import Attempt, Batch, LogLine, LogWindow, Progress, Run, RunDetail, Step
from rota.sdk.app import App
from rota.sdk.context import Context, Identity, StepReport
from rota.sdk.errors import NotFound
from rota.sdk.functions import JobFunction
from rota.sdk.values import to_plain

T = TypeVar("T")

_EARLIEST = "2026-01-01T00:00"


@contextmanager
def inline(app: App, now: datetime | str = _EARLIEST, tz: str = "UTC") -> Iterator[Inline]:
    """Run the app's jobs here. `now` is a time of the zone `tz` unless it has an offset."""
    world = Inline(app, _instant(now, tz))
    with app.submitting_to(world, _Awaited(world)):
        yield world
