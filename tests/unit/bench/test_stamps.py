from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench import stamps

ROOT = Path(__file__).parents[3]


def stamp(path: Path, *statements: str) -> None:
    """Stamp from another process, as the work does."""
    program = f"from bench.stamps import mark, tick; {'; '.join(statements)}"
    environ = os.environ | {stamps.VARIABLE: str(path)}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environ, check=True)


def test_every_tick_of_every_process_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "stamps"

    stamp(path, "tick()", "tick()")
    stamp(path, "tick()")

    assert stamps.count_ticks(path) == 3
    assert stamps.read_ticks(path) == sorted(stamps.read_ticks(path))


def test_mark_tells_how_late_work_began(tmp_path: Path) -> None:
    path = tmp_path / "stamps"

    stamp(path, "import time", "mark(time.time() - 60)")

    [lateness] = stamps.read_lateness(path)
    assert stamps.count_marks(path) == 1
    assert lateness >= 60


def test_nothing_was_stamped_before_the_first_stamp(tmp_path: Path) -> None:
    assert stamps.count_ticks(tmp_path / "stamps") == 0
