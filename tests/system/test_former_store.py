"""`rota up` on the data folder of the release before there were tenants."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota.sdk.client import Client
from testkit.processes import RotaUp
from testkit.waiting import eventually

pytestmark = pytest.mark.slow

FORMER = Path(__file__).parents[1] / "conformance" / "store" / "former"
PROJECTS = ("default", "etl", "web")


@pytest.fixture
def former_home(home: Path) -> Path:
    home.mkdir(mode=0o700)
    with closing(sqlite3.connect(home / "rota.db")) as store:
        store.executescript((FORMER / "sqlite.sql").read_text())
    (home / "rota.db").chmod(0o600)
    return home


def test_it_goes_on_and_the_doctor_names_what_to_tighten(former_home: Path) -> None:
    secrets = json.loads((FORMER / "secrets.json").read_text())["sqlite"]
    rota = RotaUp(former_home, log_level="error")
    try:
        rota.start()
        url = rota.client.server.url
        done = {}
        for project in PROJECTS:
            with Client(url, secrets["operator"], project=project) as operator:
                run = operator.trigger("tidy")
                done[project] = operator.wait(run.id).state
        told = json.loads(rota.command("doctor", "--json").stdout)
        with Client(url, secrets["revoked"]) as gone:
            refused = gone.exchange(Client.list_jobs()).status
        eventually(lambda: not _queued(rota.client, "tidy"))  # what waited then has run as well
    finally:
        rota.close()

    assert done == dict.fromkeys(PROJECTS, "COMPLETED")
    warned = [
        it["message"] for it in told if (it["subject"], it["verdict"]) == ("token", "warning")
    ]
    assert len([each for each in warned if "before projects had roles" in each]) == 5
    assert any("shared by all projects" in it["message"] for it in told if it["subject"] == "pool")
    assert refused == 401


def _queued(client: Client, job: str) -> list[str]:
    found = client.list_runs(state="queued")
    return [run.id for run in found if run.job == job]
