"""Work that is watched at one server while another one has its worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.sdk.answers import LinesNews, RunDetail, StepNews, TimeNews
from rota.sdk.client import Client
from rota.sdk.events import EventReader
from rota.sdk.exchange import get, live
from testkit.cluster import Cluster
from testkit.waiting import PATIENCE
from tests.system.jobs import apply, job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def two_steps(built: Path, tested: Path) -> list[dict[str, str]]:
    wait = "while ! [ -e {} ]; do sleep 0.05; done"
    return [
        {"name": "build", "run": f"echo compiling; {wait.format(built)}"},
        {"name": "test", "run": f"echo testing; {wait.format(tested)}"},
    ]


@pytest.mark.parametrize("server", range(3))
def test_each_step_is_told_while_it_runs_at_whichever_server_it_is_watched(
    cluster: Cluster, tmp_path: Path, server: int
) -> None:
    tmp_path.chmod(0o755)
    built, tested = tmp_path / "built", tmp_path / "tested"
    watcher = cluster.client(server)
    apply(cluster.client(), job(f"two-steps-{server}", *two_steps(built, tested)))
    run = cluster.client((server + 1) % 3).trigger(f"two-steps-{server}")
    told: list[str] = []
    idle = 0

    for news in watcher.follow_run(run.id, PATIENCE.total_seconds() * 2):
        match news:
            case StepNews():
                told.append(f"{news.step.name} {news.step.result}")
                if told[-1] == "test running":
                    tested.touch()
            case LinesNews():
                told += [line.text for line in news.lines]
                if "compiling" in told:
                    built.touch()
            case TimeNews():
                idle += 1
            case RunDetail():
                told.append(news.state)
            case _:
                pass

    assert told == [
        "build running",
        "compiling",
        "build completed",
        "test running",
        "testing",
        "test completed",
        "COMPLETED",
    ]
    assert idle < 10  # what is told comes as a hint, not with the slow look of every five seconds


def test_a_stream_that_is_cut_goes_on_at_another_server(cluster: Cluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    built, tested = tmp_path / "built", tmp_path / "tested"
    apply(cluster.client(), job("moved", *two_steps(built, tested)))
    run = cluster.client().trigger("moved").id

    first, place = read(cluster.client(0), run, "", until="lines")
    built.touch()
    second, place = read(cluster.client(1), run, place, until="step")
    tested.touch()
    third, _ = read(cluster.client(2), run, place, until="end")

    assert first[-1] == "lines"
    assert "lines" not in second
    assert third[-2:] == ["attempt", "end"] or third[-3:] == ["attempt", "run", "end"]


def read(client: Client, run: str, after: str, *, until: str) -> tuple[list[str], str]:
    """The names of events up to the first with a name, and where to go on."""
    names: list[str] = []
    reader = EventReader()
    stream = client.stream(live(get(bytes, f"/runs/{run}/stream"), after))
    for data in stream:
        for event in reader.feed(data):
            if event.name != "time":
                names.append(event.name)
            if event.name == until:
                stream.close()
                return names, event.id
    raise AssertionError(f"the stream ended without {until}: {names}")
