from __future__ import annotations

from datetime import UTC, datetime

from rota.cli.references import run_id
from rota.domain.ids import new_run_id
from rota.sdk.client import Client


def test_whole_id_of_a_run_is_not_asked_for() -> None:
    nobody = Client("http://127.0.0.1:1", "token")
    run = new_run_id(datetime(2026, 3, 1, tzinfo=UTC))

    assert run_id(nobody, run) == run
    assert run_id(nobody, f"http://127.0.0.1:7700/runs/{run}") == run
