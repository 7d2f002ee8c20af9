"""A worker reports how attempts ended until it has an answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.worker.test_stopping import Worker

from rota.ports.work import Dispatch, Work

pytestmark = pytest.mark.anyio


async def test_an_end_that_a_server_could_not_take_is_reported_again_without_reconnecting(
    tmp_path: Path,
) -> None:
    worker = Worker(tmp_path / "spool", report_again=timedelta(milliseconds=10))
    worker.link.takes_output = True
    worker.link.unanswered_reports = 2
    unreadable = Work("r_1", 1, "j_of_a_later_version", 1, due_at=0)
    running = asyncio.ensure_future(worker.run())

    worker.link.orders.put_nowait(Dispatch((unreadable,), ()))
    await asyncio.wait_for(worker.link.answered.wait(), 10)
    worker.session.stop()
    await asyncio.wait_for(running, 10)

    assert worker.link.reported == ["FAILED"] * 3
    assert worker.connections == 1
