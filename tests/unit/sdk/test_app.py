from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import App, Context, NotFound, Retry, RunNotCompleted, cron
from rota.domain.jobfile import read_job
from rota.sdk.app import load_app
from rota.sdk.client import Client
from tests.unit.sdk.answering import Answering, document, problem

RUN = {"id": "r_1", "job": "add", "state": "QUEUED"}


@pytest.fixture
def app(server: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("ROTA_URL", server.url)
    monkeypatch.setenv("ROTA_TOKEN", "secret")
    app = App("sums")
    yield app
    app.close()


def ended(**fields: object) -> dict[str, object]:
    return {**RUN, "state": "COMPLETED", **fields}


def test_plain_call_runs_the_function_and_never_submits(app: App, server: Answering) -> None:
    @app.job()
    def add(ctx: Context, a: int, b: int = 2) -> int:
        with ctx.step("add"):
            ctx.progress(1, total=1)
        return a + b

    assert add(1) == 3
    assert add.fn(None, 1, b=5) == 6
    assert server.asked == []


def test_call_of_an_async_function_is_awaited_as_ever(app: App) -> None:
    @app.job()
    async def add(a: int) -> int:
        return a + 1

    assert asyncio.run(add(1)) == 2


def test_log_of_a_function_called_by_hand_is_printed(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.job()
    def talk(ctx: Context) -> None:
        ctx.log(f"{ctx.job} {ctx.attempt} {ctx.fence} {ctx.cancelled}")

    talk()

    assert capsys.readouterr().out == "talk 1 1 False\n"


def test_document_is_a_valid_job_of_a_job_file(app: App) -> None:
    @app.job(
        schedule=cron("0 2 * * *", tz="Europe/Berlin"),
        retry=Retry(3, backoff="exponential", delay="10s"),
        timeout="1h",
        labels={"tier": "gold"},
    )
    def nightly_backup(ctx: Context, target: str = "all") -> int:
        """Back up a database.

        And tell nobody.
        """
        return 0

    (document,) = app.documents()
    spec = read_job(document)

    assert (spec.name, spec.function) == ("nightly_backup", "sums.nightly_backup")
    assert spec.description == "Back up a database."
    assert spec.timeout == timedelta(hours=1)
    assert spec.retry.attempts == 3
    assert spec.inputs["target"].default == "all"
    assert spec.schedule is not None
    assert spec.schedule.timezone == "Europe/Berlin"


def test_job_may_have_another_name_than_its_function(app: App) -> None:
    @app.job(name="nightly-backup")
    def backup() -> None: ...

    (document,) = app.documents()

    assert (document["name"], document["function"]) == ("nightly-backup", "sums.backup")


def test_two_jobs_of_one_name_are_refused(app: App) -> None:
    @app.job()
    def backup() -> None: ...

    with pytest.raises(ValueError, match="already has a job backup"):
        app.job(name="backup")(lambda: None)


def test_unknown_option_is_refused_with_the_nearest_name(app: App) -> None:
    options: dict[str, Any] = {"scedule": "@daily"}

    with pytest.raises(TypeError, match=r'"scedule" is no option of a job: schedule\?'):
        app.job(**options)


def test_app_is_applied_as_one_set(app: App, server: Answering) -> None:
    server.on("POST /jobs:apply", document({"changes": [], "etag": "1", "applied": True}))

    @app.job()
    def add(a: int) -> int:
        return a

    app.apply(prune=True)

    (asked,) = server.asked
    assert asked.document["set"] == "sums"
    assert asked.document["jobs"][0]["name"] == "add"
    assert asked.query == {"name": ["sums"], "prune": ["true"]}


def test_submit_returns_a_handle_at_once(app: App, server: Answering) -> None:
    server.on("POST /jobs/add/runs", document(RUN, 202))
    server.on("GET /runs/r_1", document(ended(outputs=7)))

    @app.job()
    def add(ctx: Context, a: int, b: int = 2) -> int:
        raise AssertionError("it runs on a worker")

    run = add.submit(5)

    assert server.asked[0].document == {"inputs": {"a": 5}}
    assert (run.id, run.url) == ("r_1", f"{server.url}/runs/r_1")
    assert run.wait(timeout=5).output == 7


def test_job_that_was_never_applied_says_how_to_define_it(app: App, server: Answering) -> None:
    unknown = problem(404, code="job_not_found", detail="no job named 'add'")
    server.on("POST /jobs/add/runs", unknown)
    server.on("POST /jobs/add/runs:batch", unknown)

    @app.job()
    def add(a: int) -> int:
        return a

    async def submit_async() -> None:
        try:
            await add.asubmit(1)
        finally:
            await app.aclose()

    submits: list[Callable[[], object]] = [
        lambda: add.submit(1),
        lambda: add.submit_many([{"a": 1}]),
        lambda: asyncio.run(submit_async()),
    ]
    for submit in submits:
        with pytest.raises(NotFound) as refused:
            submit()

        assert refused.value.hint.startswith(f"define it with rota apply --app {__name__}:app")


def test_output_has_the_type_the_function_returns(app: App, server: Answering) -> None:
    server.on("POST /jobs/first_day/runs", document(RUN, 202))
    server.on("GET /runs/r_1", document(ended(outputs="2026-01-01T00:00:00Z")))

    @app.job()
    def first_day() -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    assert first_day.submit().wait().output == datetime(2026, 1, 1, tzinfo=UTC)


def test_output_of_a_run_that_failed_is_an_error_with_its_message(
    app: App, server: Answering
) -> None:
    server.on("POST /jobs/add/runs", document(RUN, 202))
    server.on("GET /runs/r_1", document(ended(state="FAILED", message="ValueError: no")))

    @app.job()
    def add() -> int:
        return 1

    result = add.submit().wait()

    assert result.state == "FAILED"
    with pytest.raises(RunNotCompleted, match="r_1 of add is FAILED: ValueError: no"):
        _ = result.output


def test_async_submit_is_the_same_awaited(app: App, server: Answering) -> None:
    server.on("POST /jobs/add/runs", document(RUN, 202))
    server.on("POST /runs/r_1:cancel", document(RUN))
    server.on("GET /runs/r_1", document(ended(outputs=3)))

    @app.job()
    async def add(a: int) -> int:
        return a

    async def submit() -> int:
        run = await add.asubmit(a=1)
        await run.cancel()
        result = await run.wait()
        await app.aclose()
        return result.output

    assert asyncio.run(submit()) == 3
    assert server.asked[1].path == "/api/v1/runs/r_1:cancel"


def test_options_of_a_submission_are_sent_with_it(app: App, server: Answering) -> None:
    server.on("POST /jobs/add/runs", document(RUN, 202))

    @app.job()
    def add() -> None: ...

    at = "2026-06-01T22:00+02:00"
    add.with_options(priority=8, at=at, key="once").submit()
    add.submit()

    first, second = server.asked
    assert first.document == {"inputs": {}, "at": at, "priority": 8}
    assert first.headers["Idempotency-Key"] == "once"
    assert second.document == {"inputs": {}}


def test_delay_counts_from_now(
    app: App, server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(Client, "now", lambda _: now)
    server.on("POST /jobs/add/runs", document(RUN, 202))

    @app.job()
    def add() -> None: ...

    add.with_options(delay=timedelta(minutes=5)).submit()

    assert server.asked[0].document["at"] == "2026-01-01T00:05:00Z"


def test_at_and_delay_exclude_one_another(app: App) -> None:
    @app.job()
    def add() -> None: ...

    with pytest.raises(TypeError, match="either at or delay"):
        add.with_options(at="2026-01-01T00:00Z", delay=timedelta(1))


def test_many_are_submitted_in_batches_of_ten_thousand(app: App, server: Answering) -> None:
    server.on(
        "POST /jobs/add/runs:batch",
        document({"runs": [f"r_{number}" for number in range(10_000)]}, 202),
        document({"runs": ["r_last"]}, 202),
    )

    @app.job()
    def add(a: int) -> None: ...

    runs = add.with_options(key="all").submit_many({"a": number} for number in range(10_001))

    first, second = server.asked
    assert (len(runs), runs[-1].id) == (10_001, "r_last")
    assert len(first.document["inputs"]) == 10_000
    assert second.document == {"inputs": [{"a": 10_000}]}
    assert first.headers["Idempotency-Key"] == "all/0"
    assert second.headers["Idempotency-Key"] == "all/10000"


def test_batch_takes_no_times_or_priorities(app: App) -> None:
    @app.job()
    def add(a: int) -> None: ...

    with pytest.raises(TypeError, match="submit_many takes no priority"):
        add.with_options(priority=1).submit_many([{"a": 1}])


def test_logs_of_a_handle_are_lines(app: App, server: Answering) -> None:
    window = {"attempt": 1, "lines": [{"n": 0, "text": "hello"}], "next_line": 1}
    server.on("POST /jobs/add/runs", document(RUN, 202))
    server.on("GET /runs/r_1", document(ended(attempt=1)))
    server.on("GET /runs/r_1/log", document(window), document({"attempt": 1, "next_line": 1}))

    @app.job()
    def add() -> None: ...

    server.on("GET /runs/r_1/log/stream", document({}, 503))

    assert [line.text for line in add.submit().logs()] == ["hello"]


def test_app_is_found_by_module_and_name() -> None:
    assert load_app("tests.unit.sdk.some_app:nightly").name == "nightly"
    assert load_app("tests.unit.sdk.some_app").name == "usual"
    with pytest.raises(TypeError, match="some_app:other is not an App"):
        load_app("tests.unit.sdk.some_app:other")
