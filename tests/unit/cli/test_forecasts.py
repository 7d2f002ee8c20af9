"""`rota forecast`."""

from __future__ import annotations

from datetime import timedelta

from testkit.builders import hello
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

JOBS = """
jobs:
  - {name: heartbeat, schedule: every 1m, overlap: allow, expect: 1s, steps: [{run: x}]}
  - {name: report, schedule: every 4m, steps: [{run: x}]}
"""


def begin_work(server: Server, slots: int = 4) -> None:
    """A worker comes."""
    server.do(server.engine.store.register(hello(slots=slots), timedelta(minutes=10)))


def test_starts_are_grouped_by_job_with_the_peak_below(rota: Console, server: Server) -> None:
    server.define(JOBS)
    begin_work(server)

    shown = rota("forecast", "--for", "4m30s")

    heading, first, second, peak = shown.lines
    assert heading.split() == ["START", "(UTC)", "JOB", "TAKES", "WAITS", "NOTE"]
    assert first.split()[1:] == ["heartbeat", "×4", "~1.0", "s"]
    assert second.split()[1:] == ["report", "~1.0", "s", "(guessed)"]
    assert peak.startswith("peak 2 of 4 slots at ")
    assert "1 job is without history or expect" in shown.err


def test_what_runs_out_is_told_with_those_who_wait(rota: Console, server: Server) -> None:
    server.define(JOBS)

    shown = rota("forecast", "--for", "4m30s").lines

    assert shown[1].split()[0] == "later"
    assert "not in this window, for a worker of pool default" in shown[1]
    assert shown[-1].startswith("! ")
    assert shown[-1].endswith(
        "5 runs wait beyond this window for a worker of pool default: heartbeat, report"
    )


def test_waits_are_told_in_the_units_of_every_other_page(rota: Console, server: Server) -> None:
    now = server.do(server.engine.store.now())
    first, second = (f"{now + timedelta(minutes=after):%Y-%m-%dT%H:%M:%SZ}" for after in (10, 11))
    server.define(
        f"""
jobs:
  - {{name: first, schedule: "{first}", expect: 1h30m, steps: [{{run: x}}]}}
  - {{name: second, schedule: "{second}", expect: 90s, steps: [{{run: x}}]}}
"""
    )
    begin_work(server, slots=1)

    _, first_row, second_row, *_ = rota("forecast", "--for", "3h").lines

    assert first_row.endswith("~1 h 30 m")
    assert second_row.endswith("~1 m 30 s  1 h 29 m for a worker of pool default")


def test_who_waits_a_while_is_told_apart_from_who_waits_on(rota: Console, server: Server) -> None:
    server.define(
        """
jobs:
  - {name: long, schedule: every 10m, run_once: true, expect: 1h, steps: [{run: x}]}
  - {name: next, schedule: every 11m, run_once: true, steps: [{run: x}]}
  - {name: fussy, schedule: every 12m, run_once: true, needs: {site: fra}, steps: [{run: x}]}
"""
    )
    begin_work(server, slots=1)

    *_, told = rota("forecast", "--for", "3h").lines

    assert told.endswith(
        "2 runs wait, 1 of them beyond this window, for a worker of pool default: next, fussy"
    )


def test_a_run_that_lasts_longer_than_usual_is_marked(rota: Console, server: Server) -> None:
    server.define("jobs: [{name: blink, schedule: every 4m, expect: 0.1ms, steps: [{run: x}]}]")
    rota("trigger", "blink")
    server.claim()

    _, row, _, slow = rota("forecast", "--for", "4m30s").lines

    assert row.endswith("running longer than usual")
    assert slow.startswith("! blink is running longer than usual: ")


def test_one_job_is_told_start_by_start(rota: Console, server: Server) -> None:
    server.define(JOBS)

    shown = rota("forecast", "--for", "4m30s", "--job", "heartbeat").lines

    assert sum(line.startswith("later") for line in shown) == 4


def test_what_is_declared_can_be_asked_for_before_a_run_takes_it(
    rota: Console, server: Server
) -> None:
    server.define(
        "{resources: [{name: pg-license, total: 4}], limits: [{name: s3-put, tokens: 5, per: 1m}],"
        " jobs: [{name: tidy, schedule: every 1m, steps: [{run: x}]}]}"
    )
    begin_work(server)

    resource = rota("forecast", "--for", "5m", "--resource", "pg-license")
    limit = rota("forecast", "--for", "5m", "--resource", "s3-put")
    unknown = rota("forecast", "--resource", "pg-licence")

    assert resource.lines[-1].startswith("peak 0 of 4 pg-license at ")
    assert limit.lines[-1].startswith("peak 0 of 10 s3-put at ")
    assert "no resource or limit is called" in unknown.err
    assert ", pg-license, s3-put" in unknown.err


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


def test_what_is_no_length_of_time_is_told_with_its_option(rota: Console, server: Server) -> None:
    ended = rota("forecast", "--for", "1x")

    assert ended.code == 2
    assert ended.err.startswith('rota: --for: "1x" is not a duration: write 30s, 1h30m')


def test_a_time_further_ahead_than_is_looked_is_refused(rota: Console, server: Server) -> None:
    server.define(JOBS)

    ended = rota("forecast", "--for", "8d")

    assert ended.code == rota("forecast", "--for", "soon").code != 0
    assert "must not go beyond 7 days from now" in ended.err


def test_inputs_that_exclude_one_another_are_told_by_their_values(
    rota: Console, server: Server
) -> None:
    server.define(
        """
jobs:
  - name: restart
    inputs: {host: {type: string}}
    exclusive_by: [host]
    expect: 1m
    steps: [{run: x}]
"""
    )
    begin_work(server)
    for _ in range(2):
        rota("trigger", "restart", "--input", "host=db-1")
    server.claim()

    shown = rota("forecast", "--for", "5m").lines

    assert shown[1].endswith("for another run with host=db-1 (exclusive_by)")


def test_runs_of_a_job_of_which_nothing_is_known_are_guessed_and_not_slow(
    rota: Console, server: Server
) -> None:
    server.define("jobs: [{name: new, steps: [{run: x}]}]")
    rota("trigger", "new")
    server.claim()
    rota("trigger", "new")

    shown = rota("forecast", "--for", "5m")

    assert shown.lines[1].endswith("new  ~1.0 s (guessed)")
    assert "1 job is without history or expect" in shown.err


def test_what_waits_for_another_job_says_so(rota: Console, server: Server) -> None:
    server.define(
        """
jobs:
  - {name: ingest, steps: [{run: x}]}
  - {name: rollup, schedule: every 4m, after: [ingest], steps: [{run: x}]}
"""
    )
    begin_work(server)

    shown = rota("forecast", "--for", "4m30s").lines

    assert "not in this window, for ingest to complete" in shown[1]
    assert not shown[-1].startswith("!")
