"""Opening a store on SQLite: whose it is, what it survives, and that its file stays whole."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import Conflict, Unavailable
from rota.domain.ids import JobId, RunId, new_run_id
from rota.domain.run import Trigger
from rota.domain.spec import Overlap
from rota.ports.records import NewRun, RunQuery
from rota.store.sqlite.opening import FileClock, open_sqlite
from testkit.builders import Scene, new_job
from testkit.clock import FakeTicker

pytestmark = pytest.mark.anyio


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; skips where we may not mount."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_store_is_created_with_its_folder_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "data" / "rota.db"

    store = await open_sqlite(path)
    await store.close()

    assert path.parent.stat().st_mode & 0o077 == 0
    assert path.stat().st_mode & 0o077 == 0


async def test_what_was_written_is_there_after_opening_again(tmp_path: Path) -> None:
    clock = FakeTicker()
    first = await open_sqlite(tmp_path / "rota.db", clock=clock)
    scene = Scene(first, clock)
    runs = await scene.trigger(await scene.job(), 3)
    await first.close()

    second = await open_sqlite(tmp_path / "rota.db", clock=clock)
    found = {run.id for run in await second.runs(RunQuery())}
    await second.close()

    assert found == set(runs)


async def test_a_second_server_is_refused_and_told_the_pid_of_the_first(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "rota.db")

    with pytest.raises(Conflict) as conflict:
        await open_sqlite(tmp_path / "rota.db")
    await store.close()

    assert conflict.value.code == "already_running"
    assert f"pid {os.getpid()}" in conflict.value.message


async def test_another_process_may_look_beside_the_server(tmp_path: Path) -> None:
    server = await open_sqlite(tmp_path / "rota.db")

    beside = await open_sqlite(tmp_path / "rota.db", exclusive=False)
    await beside.check()

    await beside.close()
    await server.close()


async def test_a_store_made_by_a_newer_rota_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    await (await open_sqlite(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")

    with pytest.raises(Conflict) as conflict:
        await open_sqlite(path)

    assert conflict.value.code == "store_is_newer"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)


async def test_a_failed_opening_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    path.write_bytes(b"this is no database, and longer than the header of one" * 10)

    for _ in range(2):
        with pytest.raises(Unavailable) as unavailable:
            await open_sqlite(path)
        assert unavailable.value.code == "store_damaged"


async def test_a_read_only_folder_is_refused_with_a_hint(tmp_path: Path) -> None:
    with mounted(tmp_path / "data", "size=1m,ro") as folder:
        with pytest.raises(Unavailable) as unavailable:
            await open_sqlite(folder / "rota.db")

        assert str(folder) in unavailable.value.message
        assert "ROTA_HOME" in unavailable.value.hint


async def test_a_full_disk_is_told_damages_nothing_and_is_survived(tmp_path: Path) -> None:
    with mounted(tmp_path / "data", "size=4m") as folder:
        clock = FakeTicker()
        store = await open_sqlite(folder / "rota.db", clock=clock)
        scene = Scene(store, clock)
        job_id = await scene.job(overlap=Overlap.ALLOW)
        kept = await scene.trigger(job_id, 10)
        ballast = folder / "ballast"
        _fill(ballast)

        kept += await _submit_until_refused(scene, job_id)
        rest = folder / "rest"
        _fill(rest)  # what was too little for a batch would do for a small write
        with pytest.raises(Unavailable):
            await store.check()
        ballast.unlink()
        rest.unlink()
        kept += await scene.trigger(job_id, 10)

        found = await store.runs(RunQuery(limit=100_000))
        assert {run.id for run in found} == set(kept)
        await store.close()
        with closing(sqlite3.connect(folder / "rota.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def _submit_until_refused(scene: Scene, job_id: JobId) -> list[RunId]:
    accepted: list[RunId] = []
    with pytest.raises(Unavailable):  # noqa: PT012 - some fit before the disk is full
        for _ in range(100):
            accepted += await scene.trigger(job_id, 100)
    return accepted


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


class TestClock:
    def test_a_step_of_the_wall_clock_changes_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = FileClock(mark=0)
        before = clock.now()

        monkeypatch.setattr(time, "time_ns", lambda: 0)

        assert 0 <= clock.now() - before < 60_000_000

    def test_a_wall_clock_behind_the_mark_is_not_believed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000)

        clock = FileClock(mark=5_000_000_000)

        assert clock.now() >= 5_000_000_000

    async def test_time_goes_on_from_the_mark_after_the_wall_clock_was_set_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = await open_sqlite(tmp_path / "rota.db")
        await first.check()
        before = await first.now()
        await first.close()
        hour_ago = time.time_ns() - 3_600 * 10**9  # noqa: TID251 - a wall clock that is wrong
        monkeypatch.setattr(time, "time_ns", lambda: hour_ago)

        second = await open_sqlite(tmp_path / "rota.db")
        after = await second.now()
        await second.close()

        assert (before - after).total_seconds() < 2


SUBMITTER = """
import asyncio, sys
from pathlib import Path
from rota.store.sqlite.opening import open_sqlite
from rota.domain.ids import new_run_id
from rota.domain.run import Trigger
from rota.ports.store import NewRun

async def main(path, job_id):
    store = await open_sqlite(Path(path))
    now = await store.now()

    async def submit_for_ever():
        while True:
            run = NewRun(new_run_id(now), job_id, 1, Trigger.MANUAL, "user")
            await store.submit([run])
            print(run.id, flush=True)

    await asyncio.gather(*(submit_for_ever() for _ in range(8)))

asyncio.run(main(*sys.argv[1:]))
"""


def _submit_and_kill(path: Path, job_id: JobId) -> set[str]:
    """Let another process submit runs, and kill it; the runs that it was promised."""
    command = [sys.executable, "-c", SUBMITTER, str(path), job_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as submitter:
        assert submitter.stdout is not None
        acknowledged = {submitter.stdout.readline().strip() for _ in range(200)}
        submitter.kill()
        return acknowledged | {line.strip() for line in submitter.stdout if line.endswith("\n")}


async def test_a_kill_in_the_middle_of_commits_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    job = new_job("job", FakeTicker().instant)
    store = await open_sqlite(path)
    await store.save_jobs([job], actor="editor")
    await store.close()

    acknowledged = _submit_and_kill(path, job.id)

    reopened = await open_sqlite(path)
    found = {run.id for run in await reopened.runs(RunQuery(limit=1_000_000))}
    await reopened.submit([NewRun(new_run_id(job.anchor), job.id, 1, Trigger.MANUAL, "user")])
    await reopened.close()
    assert len(acknowledged) >= 200
    assert acknowledged <= found


async def test_the_sweep_goes_round_all_that_waits(tmp_path: Path) -> None:
    clock = FakeTicker()
    store = await open_sqlite(tmp_path / "rota.db", clock=clock)
    scene = Scene(store, clock)
    for name in ("a", "b"):
        await scene.trigger(await scene.job(name, max_concurrency=1), 2)
    yesterday, today = clock.instant - timedelta(days=1), clock.instant
    await scene.backfill(await scene.job("c"), [yesterday, today])
    with closing(sqlite3.connect(tmp_path / "rota.db")) as connection:
        connection.execute("UPDATE run SET state = 'FAILED' WHERE state = 'QUEUED'")
        connection.commit()

    swept = [await store.release_forgotten(1) for _ in range(4)]
    await store.close()

    assert swept == [1, 1, 1, 0]


_VALUES = {"TEXT": "x", "INTEGER": 1_000, "REAL": 0.5, "BLOB": b"x"}


def fill(connection: sqlite3.Connection, table: str) -> None:
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    values = [_VALUES[kind] for _, _, kind, *_ in columns]
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)


async def test_a_store_with_a_row_in_every_table_passes_its_check(tmp_path: Path) -> None:
    """`rota doctor` believes `PRAGMA quick_check`, so that must believe a healthy store.

    SQLite misreads a NOT NULL column that stands between the key columns of a WITHOUT ROWID table.
    """
    path = tmp_path / "rota.db"
    await (await open_sqlite(path)).close()

    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        tables = [name for (name,) in found]
        for table in tables:
            fill(connection, table)
        connection.commit()
        verdict = connection.execute("PRAGMA quick_check").fetchall()

    assert len(tables) > 15
    assert verdict == [("ok",)]
