"""P5: one step of find and advance with ever more schedules stored."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.contest import Plan
from bench.figures import Comparison, Sample, at_most, at_most_times
from bench.machine import foreign_load, read_cpu, wait_until_quiet
from bench.rota_up import temporary_home
from bench.schedules import fill, job_id
from rota.adapters.store.sqlite.opening import open_sqlite
from rota.adapters.store.store import SqlStore
from rota.domain.ids import instant, micros
from rota.domain.schedule import Timetable
from rota.domain.spec import Misfire
from rota.operations.firing import plan_firing
