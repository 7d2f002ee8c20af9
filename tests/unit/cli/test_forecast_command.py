"""`rota forecast`."""

from __future__ import annotations

from datetime import timedelta

from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

from rota.testing.builders import hello

JOBS = """
jobs:
  - {name: heartbeat, schedule: every 1m, overlap: allow, expect: 1s, steps: [{run: x}]}
  - {name: report, schedule: every 4m, steps: [{run: x}]}
"""


def begin_work(server: Server) -> None:
    """A worker comes."""
    server.do(server.backends.store.register(hello(slots=4), timedelta(minutes=10)))


def test_starts_are_grouped_by_job_with_the_peak_below(rota: Console, server: Server) -> None:
    server.define(JOBS)
    begin_work(server)

    shown = rota("forecast", "--for", "4m30s")

    heading, first, second, peak = shown.lines
    assert heading.split() == ["START", "JOB", "TAKES", "WAITS", "NOTE"]
    assert first.split()[1:] == ["heartbeat", "×4", "~1s"]
    assert second.split()[1:] == ["report", "~1s", "(guessed)"]
    assert peak.startswith("peak 2 of 4 slots at ")
    assert "1 job is without history or expect" in shown.err


def test_what_runs_out_is_told_with_those_who_wait(rota: Console, server: Server) -> None:
    server.define(JOBS)

    shown = rota("forecast", "--for", "4m30s").lines

    assert shown[1].split()[0] == "later"
    assert shown[-1].startswith("! ")
    assert "5 runs wait up to " in shown[-1]
    assert shown[-1].endswith("for a worker of pool default: heartbeat, report")


def test_one_job_is_told_start_by_start(rota: Console, server: Server) -> None:
    server.define(JOBS)

    shown = rota("forecast", "--for", "4m30s", "--job", "heartbeat").lines

    assert sum(line.startswith("later") for line in shown) == 4


def test_programs_get_all_of_it(rota: Console, server: Server) -> None:
    server.define(JOBS)

    assert rota("forecast", "--json").json["load"]["measure"] == "slots"


def test_room_for_one_more_job_is_shown(rota: Console, server: Server) -> None:
    server.define(JOBS)
    begin_work(server)

    shown = rota("forecast", "--quiet").lines

    assert shown[0].startswith("quiet minutes of the hour: :")
    assert shown[1].startswith("quiet times of the day (UTC): ")


def test_an_unknown_resource_is_refused_with_the_known_ones(rota: Console, server: Server) -> None:
    server.define(JOBS)

    ended = rota("forecast", "--resource", "gpus")

    assert ended.code != 0
    assert "one of slots" in ended.err
