from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rota import App, Context, RemoteRun, Retry, RunNotCompleted, Status, cron, every
from rota.domain.errors import Invalid
from rota.testing import inline


def test_job_runs_at_its_due_times_in_its_own_zone() -> None:
    app = App()

    @app.job(schedule=cron("0 2 * * *", tz="Europe/Berlin"))
    def nightly_backup(ctx: Context, target: str = "all") -> str:
        return target

    with inline(app, now="2026-03-28T02:30", tz="Europe/Berlin") as t:
        t.advance("1d")

        assert t.submitted("nightly_backup") == 1
        assert t.runs[-1].state == "COMPLETED"
        assert t.runs[-1].output == "all"
        # 02:00 does not exist on that day: clocks go forward to 03:00, which is 01:00 UTC.
        assert t.runs[-1].due_at == datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_time_stands_still_until_it_is_advanced() -> None:
    app = App()

    @app.job(schedule=every("10s"))
    def tick() -> None: ...

    with inline(app) as t:
        assert t.submitted("tick") == 0
        t.advance(timedelta(seconds=35))
        assert t.submitted("tick") == 3
        assert t.now() == datetime(2026, 1, 1, 0, 0, 35, tzinfo=UTC)


def test_run_once_and_disabled_jobs_keep_their_rules() -> None:
    app = App()

    @app.job(schedule="@hourly", run_once=True)
    def once() -> None: ...

    @app.job(schedule="@hourly", enabled=False)
    def never() -> None: ...

    @app.job(schedule=every("1h"), interval_from="completion")
    def after_the_last() -> None: ...

    with inline(app) as t:
        t.advance("3h")

        assert (t.submitted("once"), t.submitted("never")) == (1, 0)
        assert t.submitted("after_the_last") == 3


def test_failed_run_is_tried_again_after_its_back_off() -> None:
    app = App()

    @app.job(retry=Retry(3, backoff="exponential", delay="10s"))
    def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise OSError(f"try {ctx.attempt}")
        return ctx.attempt

    with inline(app) as t:
        run = flaky.submit()
        assert (t.runs[0].state, t.runs[0].message) == ("SCHEDULED", "OSError: try 1")
        t.advance("29s")
        assert t.runs[0].attempt == 2
        t.advance("1s")

        assert run.wait().output == 3


def test_run_without_tries_left_has_failed() -> None:
    app = App()

    @app.job()
    def broken() -> None:
        raise SystemExit(3)

    with inline(app) as t:
        result = broken.submit().wait()

        assert (result.state, t.runs[0].cause) == ("FAILED", "error")
        assert "SystemExit: 3" in t.runs[0].printed
        with pytest.raises(RunNotCompleted, match="SystemExit: 3"):
            _ = result.output


def test_submitted_run_takes_place_at_once_or_at_its_time() -> None:
    app = App()

    @app.job()
    def add(a: int, b: int = 2) -> int:
        return a + b

    with inline(app, now="2026-01-01T12:00") as t:
        assert add.submit(1).wait().output == 3
        later = add.with_options(delay=timedelta(hours=1)).submit(a=5)
        at = add.with_options(at="2026-01-01T14:00+00:00").submit(a=6)
        with pytest.raises(TimeoutError, match="SCHEDULED until 2026-01-01 13:00"):
            later.wait()
        t.advance("2h")

        assert (later.wait().output, at.wait().output) == (7, 8)


def test_same_key_is_the_same_run() -> None:
    app = App()

    @app.job()
    def pay() -> None: ...

    with inline(app) as t:
        job = pay.with_options(key="invoice-7")
        assert job.submit().id == job.submit().id
        assert t.submitted("pay") == 1


def test_inputs_are_checked_as_the_server_would() -> None:
    app = App()

    @app.job()
    def add(a: int) -> None: ...

    with inline(app) as t, pytest.raises(Invalid):
        t.trigger("add", {"a": "seven"})


def test_many_are_submitted_one_by_one() -> None:
    app = App()

    @app.job()
    def add(a: int) -> int:
        return a

    with inline(app):
        runs = add.submit_many([{"a": 1}, {"a": 2}])

        assert [run.wait().output for run in runs] == [1, 2]


def test_job_may_submit_another() -> None:
    app = App()

    @app.job()
    def child(n: int) -> int:
        return n * 2

    @app.job()
    def parent() -> int:
        return child.submit(21).wait().output

    with inline(app) as t:
        assert parent.submit().wait().output == 42
        assert [run.job for run in t.runs] == ["parent", "child"]


def test_steps_progress_and_output_are_kept() -> None:
    app = App()

    @app.job()
    def dump(ctx: Context) -> None:
        with ctx.step("dump"):
            print("dumping")  # noqa: T201 (what is printed is what is tested)
        ctx.log("done")
        ctx.progress(1, total=2, message="half")

    with inline(app) as t:
        run = dump.submit()

        assert [line.text for line in run.logs()] == ["dumping", "done"]
        assert [(step.name, step.result) for step in t.runs[0].steps] == [("dump", "completed")]
        assert t.runs[0].last_progress == (1, 2, "half")


def test_cancelled_before_its_time_it_never_runs() -> None:
    app = App()

    @app.job()
    def later() -> None: ...

    with inline(app) as t:
        run = later.with_options(delay=timedelta(1)).submit()
        run.cancel()
        t.advance("2d")

        assert run.wait().state == "CANCELLED"


def test_async_jobs_run_also_in_async_tests() -> None:
    app = App()

    @app.job()
    async def double(n: int) -> int:
        return n * 2

    async def test() -> int:
        run = await double.asubmit(4)
        assert [line.text async for line in run.logs()] == []
        return (await run.wait()).output

    with inline(app):
        assert asyncio.run(test()) == 8
        assert double.submit(3).wait().output == 6


def test_app_submits_to_its_server_again_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:9")
    app = App()

    with inline(app):
        pass

    assert app.client.address_of("r_1") == "http://127.0.0.1:9/runs/r_1"


class Desk:
    """Opens tickets; each is done at the third look, or refused."""

    every = 60

    def __init__(self) -> None:
        self.looks: dict[str, int] = {}
        self.closed: list[str] = []

    def submit(self, run: RemoteRun) -> str:
        print("opened in", run.parameters["queue"])  # noqa: T201
        self.looks[run.id] = 0
        return run.id

    async def status(self, ticket: str) -> Status:
        self.looks[ticket] += 1
        if self.looks[ticket] < 3:
            return Status("processing", "waits", progress=self.looks[ticket] / 3)
        return Status("completed", output={"by": "jane"})

    def cancel(self, ticket: str) -> None:
        self.closed.append(ticket)


def desk() -> App:
    app = App()
    app.executor("ticket")(Desk)
    app.define("ticket", name="lamp", parameters={"queue": "OPS"})
    app.define("elsewhere", name="other")
    return app


def test_work_of_an_executor_class_takes_the_time_that_it_says() -> None:
    with inline(desk()) as t:
        run = t.trigger("lamp")
        t.advance("2m")
        assert (t.runs[0].state, t.runs[0].last_progress) == ("PROCESSING", (2 / 3, 1.0, "waits"))
        t.advance("1m")

        ended = t.wait(run.id)
        assert (ended.state, ended.outputs) == ("COMPLETED", {"by": "jane"})
        assert t.runs[0].printed == "opened in OPS\n"


def test_a_cancel_reaches_the_class() -> None:
    app = desk()
    with inline(app) as t:
        run = t.trigger("lamp")
        t.cancel_run(run.id)
        t.advance("1h")

        assert t.runs[0].state == "CANCELLED"
        assert app.executors["ticket"].instance().closed == [run.id]
