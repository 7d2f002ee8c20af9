from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rota.domain.errors import Invalid, Unavailable
from rota.domain.output import Stream
from tests.system.functions.hosting import AN_HOUR_MICROS, Hosting, assignment

pytestmark = pytest.mark.anyio

SOON = timedelta(milliseconds=50)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}  # as in a real worker


@pytest.fixture
def in_the_apps_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)


@pytest.fixture
async def hosting(in_the_apps_folder: None) -> AsyncIterator[Hosting]:
    hosting = Hosting()
    yield hosting
    await hosting.executor.close()
    assert all(process.popen.poll() is not None for process in hosting.spawner.processes)


async def test_worker_learns_the_names_of_the_functions(hosting: Hosting) -> None:
    functions = await hosting.executor.ready()

    assert "served.nothing" in functions
    assert "served.nothing_async" in functions
    assert len(hosting.spawner.processes) == 1


async def test_app_that_cannot_be_loaded_is_named_with_its_error(
    in_the_apps_folder: None,
) -> None:
    hosting = Hosting("no_such_module:app")

    with pytest.raises(Invalid, match="no_such_module:app cannot be loaded: there is no module"):
        await hosting.executor.ready()
    await hosting.executor.close()


async def test_module_without_the_app_is_refused(in_the_apps_folder: None) -> None:
    hosting = Hosting("served_app:nothing")

    with pytest.raises(Invalid, match="served_app:nothing is not an App"):
        await hosting.executor.ready()
    await hosting.executor.close()


async def test_attempts_fail_with_the_reason_when_there_is_no_host(
    in_the_apps_folder: None,
) -> None:
    hosting = Hosting("no_such_module:app")

    (outcome,) = await hosting.run(assignment("nothing"))

    assert outcome.result == "FAILED"
    assert "there is no module" in outcome.message
    await hosting.executor.close()


async def test_result_of_a_function_is_the_attempts_output(hosting: Hosting) -> None:
    (outcome,) = await hosting.run(assignment("add", {"first": 3}))

    assert (outcome.result, outcome.outputs, outcome.message) == ("COMPLETED", 13, "")


async def test_arguments_that_are_no_single_values_arrive(hosting: Hosting) -> None:
    inputs = {"arguments": '{"hosts": ["a", "bcd"]}'}

    (outcome,) = await hosting.run(assignment("count", inputs))

    assert outcome.outputs == {"a": 1, "bcd": 3}


async def test_times_are_those_of_the_stores_clock(hosting: Hosting) -> None:
    await hosting.executor.ready()
    before = hosting.reports.store_micros()

    (outcome,) = await hosting.run(assignment("nothing"))

    assert before <= outcome.started_at <= outcome.ended_at <= hosting.reports.store_micros()
    assert outcome.ended_at > AN_HOUR_MICROS


async def test_context_says_which_attempt_it_is(hosting: Hosting) -> None:
    work = assignment("tell", {})

    (outcome,) = await hosting.run(work)

    assert outcome.outputs == {
        "run": work.work.run,
        "job": "tell",
        "project": "default",
        "attempt": 2,
        "fence": (3 << 32) + 2,
        "due_at": "2023-11-14T22:13:20Z",
        "inputs": {},
    }


async def test_what_is_printed_belongs_to_the_attempt_that_printed_it(hosting: Hosting) -> None:
    talks = [assignment("talk", {"word": f"word-{number}"}) for number in range(20)]
    talks += [assignment("talk_async", {"word": f"other-{number}"}) for number in range(20)]

    await hosting.run(*talks)

    for number in range(20):
        word, other = f"word-{number}".encode(), f"other-{number}".encode()
        assert hosting.text(talks[number]) == word + b"\n\xff\n"
        assert hosting.text(talks[number], Stream.STDERR) == word + b"!\n"
        assert hosting.text(talks[20 + number]) == other + b"\n" + other + b"\n"


async def test_steps_and_progress_are_reported(hosting: Hosting) -> None:
    work = assignment("work_in_steps")

    (outcome,) = await hosting.run(work)

    assert [(step.name, step.result) for step in outcome.steps] == [
        ("dump", "completed"),
        ("ship", "failed"),
    ]
    assert hosting.reports.progress == [(work.work.fence, 1.0, 4.0, "dumping")]
    assert (Stream.STDOUT, 0, b"dumped\n") in hosting.reports.sinks[work.work.fence].pieces
    assert (outcome.result, outcome.message) == ("FAILED", "OSError: no room")


async def test_exception_is_a_failure_with_its_traceback_in_the_output(hosting: Hosting) -> None:
    work = assignment("fail")

    (outcome,) = await hosting.run(work)

    trace = hosting.text(work, Stream.STDERR).decode()
    assert outcome.result == "FAILED"
    assert outcome.message == r"ValueError: a \ud800 in the works"
    assert 'served_app.py", line' in trace
    assert "rota/sdk" not in trace


async def test_exit_ends_the_attempt_and_not_the_host(hosting: Hosting) -> None:
    (outcome,) = await hosting.run(assignment("leave"))
    await hosting.run(assignment("nothing"))

    assert (outcome.result, outcome.message) == ("FAILED", "SystemExit: 3")
    assert len(hosting.spawner.processes) == 1


async def test_result_that_json_cannot_carry_is_dropped_with_a_remark(hosting: Hosting) -> None:
    work = assignment("return_a_thread")

    (outcome,) = await hosting.run(work)

    assert (outcome.result, outcome.outputs) == ("COMPLETED", None)
    assert b"the result was not kept: a Thread cannot" in hosting.text(work, Stream.ROTA)


async def test_function_that_the_app_does_not_have_fails(hosting: Hosting) -> None:
    (outcome,) = await hosting.run(assignment("removed"))

    assert outcome.result == "FAILED"
    assert outcome.message == "the app has no function served.removed"


@pytest.mark.parametrize("function", ["wait", "wait_async"])
async def test_cancelled_function_stops_and_the_host_goes_on(
    hosting: Hosting, function: str
) -> None:
    work = assignment(function)
    hosting.start(work)
    await hosting.reports.has_begun(work)

    hosting.executor.cancel([work.work.fence])
    (outcome,) = await hosting.reports.ends(work)
    (after,) = await hosting.run(assignment("nothing"))

    assert (outcome.result, outcome.message) == ("CANCELLED", "cancelled")
    assert after.result == "COMPLETED"
    assert len(hosting.spawner.processes) == 1


async def test_cancelled_function_may_end_in_its_own_way(hosting: Hosting) -> None:
    work = assignment("end_gracefully")
    hosting.start(work)
    await hosting.reports.has_begun(work)

    hosting.executor.cancel([work.work.fence])
    (outcome,) = await hosting.reports.ends(work)

    assert (outcome.result, outcome.outputs) == ("COMPLETED", "tidied up")


async def test_attempt_cancelled_before_the_host_is_ready_never_begins(hosting: Hosting) -> None:
    work = assignment("wait")

    hosting.start(work)
    hosting.executor.cancel([work.work.fence])
    (outcome,) = await hosting.reports.ends(work)

    assert (outcome.result, outcome.message) == ("CANCELLED", "it had not begun")
    assert hosting.reports.progress == []


async def test_function_past_its_timeout_is_interrupted(hosting: Hosting) -> None:
    work = assignment("wait", timeout=SOON)

    (outcome,) = await hosting.run(work)

    assert (outcome.result, outcome.message) == ("TIMED_OUT", "timed out after 50ms")
    assert len(hosting.spawner.processes) == 1


async def test_many_waiting_functions_run_side_by_side(hosting: Hosting) -> None:
    works = [assignment("wait") for _ in range(50)]

    hosting.start(*works)
    await hosting.reports.has_begun(*works)
    hosting.executor.cancel([work.work.fence for work in works])
    outcomes = await hosting.reports.ends(*works)

    assert {outcome.result for outcome in outcomes} == {"CANCELLED"}


async def test_function_sees_the_workers_environment_but_not_its_descriptors(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://rota.example")
    monkeypatch.setenv("ROTA_GUARDIAN_FD", "3")

    (outcome,) = await hosting.run(assignment("environment"))

    assert "ROTA_URL" in outcome.outputs
    assert "ROTA_GUARDIAN_FD" not in outcome.outputs


@pytest.mark.parametrize("function", ["spin", "spin_async"])
async def test_cancel_at_any_moment_ends_each_attempt_once_and_harms_no_other(
    hosting: Hosting, function: str
) -> None:
    await hosting.executor.ready()
    for _ in range(30):
        works = [assignment(function) for _ in range(20)]
        hosting.start(*works)
        hosting.executor.cancel([work.work.fence for work in works[::2]])
        outcomes = await hosting.reports.ends(*works)

        assert {outcome.result for outcome in outcomes[::2]} <= {"COMPLETED", "CANCELLED"}
        assert {outcome.result for outcome in outcomes[1::2]} == {"COMPLETED"}
    assert len(hosting.spawner.processes) == 1


async def test_what_a_thread_says_after_the_end_of_its_attempt_is_nobodys(
    hosting: Hosting,
) -> None:
    work = assignment("leave_a_thread")

    await hosting.run(work)
    (outcome,) = await hosting.run(assignment("release_the_thread"))

    assert outcome.result == "COMPLETED"
    assert hosting.text(work) == b""
    assert hosting.reports.progress == []


async def test_function_that_ignores_everything_costs_its_host(hosting: Hosting) -> None:
    stubborn, bystander = assignment("ignore_everything", grace=SOON), assignment("wait")
    hosting.start(stubborn, bystander)
    await hosting.reports.has_begun(stubborn, bystander)

    hosting.executor.cancel([stubborn.work.fence])
    culprit, victim = await hosting.reports.ends(stubborn, bystander)
    (after,) = await hosting.run(assignment("nothing"))

    assert culprit.result == "CANCELLED"
    assert culprit.message == "killed: it did not stop within its grace"
    assert (victim.result, victim.message) == ("LOST", "the function host died (signal 9)")
    assert after.result == "COMPLETED"
    assert len(hosting.spawner.processes) == 2


async def test_stubborn_function_past_its_timeout_is_timed_out(hosting: Hosting) -> None:
    (outcome,) = await hosting.run(assignment("ignore_everything", timeout=SOON, grace=SOON))

    assert outcome.result == "TIMED_OUT"
    assert outcome.ended_at - outcome.started_at >= 100_000


@pytest.mark.parametrize(
    ("function", "end"),
    [("crash", f"signal {signal.SIGSEGV.value}"), ("exit_hard", "exit 7")],
)
async def test_function_that_takes_its_host_down_has_failed(
    hosting: Hosting, function: str, end: str
) -> None:
    (outcome,) = await hosting.run(assignment(function))
    (after,) = await hosting.run(assignment("nothing"))

    assert (outcome.result, outcome.message) == ("FAILED", f"the function host died ({end})")
    assert after.result == "COMPLETED"


async def test_of_several_in_a_host_that_died_nobody_is_blamed(hosting: Hosting) -> None:
    bystander, culprit = assignment("wait"), assignment("exit_hard")
    hosting.start(bystander)
    await hosting.reports.has_begun(bystander)

    outcomes = await hosting.run(culprit)
    outcomes += await hosting.reports.ends(bystander)

    assert [outcome.result for outcome in outcomes] == ["LOST", "LOST"]


async def test_flood_of_output_waits_for_room_and_arrives_whole(hosting: Hosting) -> None:
    work = assignment("flood", {"megabytes": 12})
    sink = hosting.reports.output(work.work.fence)
    sink.is_full = True

    hosting.start(work)
    await sink.was_asked.wait()
    held_back = len(sink.text(Stream.STDOUT))
    sink.room.set()
    await hosting.reports.ends(work)

    assert held_back < 12 * 1024 * 1024
    assert len(sink.text(Stream.STDOUT)) == 12 * 1024 * 1024


async def test_host_that_cannot_start_is_told_apart_from_a_bad_app(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")

    with pytest.raises(Unavailable, match="did not start: exit 1"):
        await hosting.executor.ready()
