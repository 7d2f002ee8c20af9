"""The calls of programs, each from the outside."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from rota.contracts import client_pb2 as pb
from rota.domain.access import Role
from rota.domain.jobfile.read import read_file
from rota.domain.states import RunState
from rota.operations import output
from rota.operations.tokens import create_token
from rota.ports.work import Offer, StepOutcome
from rota.server.gateway.parsing import ParsingPool
from rota.server.gateway.rpc.messages import job_file_of_draft
from tests.unit.server.gateway.rpc.conftest import Calls, problem_of
from tests.unit.server.gateway.served import job, job_file

pytestmark = pytest.mark.anyio

DIGEST = f"sha256:{'0' * 64}"
FAR = "2099-01-01T00:00:00Z"


async def test_a_job_is_submitted_as_user_schedule_and_code(calls: Calls) -> None:
    draft = pb.JobDraft(
        name="nightly",
        schedule=["0 2 * * *"],
        timezone="Europe/Berlin",
        code=pb.CodeLocation(script=pb.Script(steps=["make build", "make test"], path="/srv/app")),
    )

    answer = await calls("SubmitJob", pb.SubmitJobRequest(user="admin", job=draft))

    [submitted] = answer.jobs
    stored = (await calls("GetJob", pb.GetJobRequest(job="nightly"))).job
    assert (submitted.id, submitted.run_id) == (stored.id, "")
    assert submitted.delivery == pb.DELIVERY_AT_LEAST_ONCE
    assert stored.created_by == "admin"
    assert "Europe/Berlin" in stored.schedule
    assert all(text in stored.yaml for text in ("make build", "make test", "/srv/app"))
    assert stored.next_at.ToDatetime(UTC) > datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_job_without_a_schedule_runs_at_once(calls: Calls) -> None:
    draft = pb.JobDraft(name="now", code=pb.CodeLocation(script=pb.Script(steps=["true"])))

    answer = await calls("SubmitJob", pb.SubmitJobRequest(job=draft))

    due = await calls("GetDueJobs", pb.GetDueJobsRequest())
    assert [run.id for run in due.runs] == [answer.jobs[0].run_id]
    assert due.runs[0].state == pb.RUN_STATE_BLOCKED  # there is no worker
    again = await calls("TriggerJob", pb.TriggerJobRequest(job="now"))
    assert again.run.state == pb.RUN_STATE_BLOCKED


@pytest.mark.parametrize(
    ("code", "source", "steps"),
    [
        (
            pb.CodeLocation(
                git=pb.GitCode(url="https://git.example.org/a", ref="main", steps=["make"])
            ),
            {"git": {"url": "https://git.example.org/a", "ref": "main"}},
            [{"run": "make"}],
        ),
        (
            pb.CodeLocation(
                upload=pb.UploadedCode(digest=DIGEST, name="app.tar.gz", steps=["./run"])
            ),
            {"upload": {"digest": DIGEST, "name": "app.tar.gz"}},
            [{"run": "./run"}],
        ),
        (
            pb.CodeLocation(upload=pb.UploadedCode(digest=DIGEST, name="tool")),
            {"upload": {"digest": DIGEST, "name": "tool"}},
            None,
        ),
    ],
    ids=["git", "an archive", "a program"],
)
def test_code_that_is_fetched_is_a_source(
    code: pb.CodeLocation, source: dict[str, object], steps: object
) -> None:
    [job] = json.loads(job_file_of_draft(pb.JobDraft(name="a", code=code)))["jobs"]

    assert (job["source"], job.get("steps")) == (source, steps)
    assert read_file(json.dumps({"jobs": [job]}), name="a").jobs[0].spec.steps


async def test_an_upload_that_is_not_there_is_refused(calls: Calls) -> None:
    code = pb.CodeLocation(upload=pb.UploadedCode(digest=DIGEST, name="tool"))

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await calls("SubmitJob", pb.SubmitJobRequest(job=pb.JobDraft(name="a", code=code)))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_wrong_inputs_are_told_with_their_place_and_what_would_be_right(calls: Calls) -> None:
    size = {"type": "choice", "options": ["small", "large"]}
    await calls.submit(job_file(job(schedule=FAR, inputs={"size": size}, title="整頓")))
    request = pb.TriggerJobRequest(job="tidy", inputs_json='{"size": "smal"}')

    _, problem = await calls.refused("TriggerJob", request)

    [fault] = problem.faults
    assert (fault.path, fault.message) == (
        "size",
        'input "size" must be "small" or "large", not "smal"',
    )
    assert fault.hint == 'did you mean "small"?'
    assert (await calls("GetJob", pb.GetJobRequest(job="tidy"))).job.title == "整頓"


async def test_a_function_is_a_code_location_too(calls: Calls) -> None:
    draft = pb.JobDraft(name="tidy", code=pb.CodeLocation(function="app.tidy"))

    await calls("SubmitJob", pb.SubmitJobRequest(job=draft))

    stored = (await calls("GetJob", pb.GetJobRequest(job="tidy"))).job
    assert "function: app.tidy" in stored.yaml


async def test_a_whole_file_is_submitted_with_the_delivery_of_each_job(calls: Calls) -> None:
    answer = await calls.submit(
        job_file(job("pay", delivery="at_most_once"), job("later", schedule=FAR))
    )

    assert [(each.name, each.delivery, bool(each.run_id)) for each in answer.jobs] == [
        ("pay", pb.DELIVERY_AT_MOST_ONCE, True),
        ("later", pb.DELIVERY_AT_LEAST_ONCE, False),
    ]


async def test_the_same_key_gives_the_same_run(calls: Calls) -> None:
    first = await calls.submit(job_file(job()), idempotency_key="k1")
    second = await calls.submit(job_file(job()), idempotency_key="k1")

    assert first == second


async def test_everything_that_is_wrong_with_a_file_is_told(calls: Calls) -> None:
    text = "jobs:\n  - name: a\n    schedul: daily\n    steps: []\n"

    status, problem = await calls.refused("SubmitJob", pb.SubmitJobRequest(yaml=text))

    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert any(fault.line == 3 and "schedule" in fault.hint for fault in problem.faults)


async def test_a_file_with_a_thousand_faults_is_refused_all_the_same(calls: Calls) -> None:
    text = json.dumps({"jobs": [{"nam": "x" * 50} for _ in range(120)]})

    status, problem = await calls.refused("SubmitJob", pb.SubmitJobRequest(yaml=text))

    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert problem.faults


UNKNOWN_STATUS = pb.UpdateRunStatusRequest.FromString(b"\x12\x03r_1\x18\x63")
REFUSED = {
    "no definition": ("SubmitJob", pb.SubmitJobRequest()),
    "no code": ("SubmitJob", pb.SubmitJobRequest(job=pb.JobDraft(name="a"))),
    "project": ("GetJob", pb.GetJobRequest(project="../x", job="tidy")),
    "NUL": ("GetJob", pb.GetJobRequest(job="ti\0dy")),
    "no job": ("DeleteJob", pb.DeleteJobRequest()),
    "page size": ("GetDueJobs", pb.GetDueJobsRequest(page=pb.Page(size=1_001))),
    "page token": ("GetDueJobs", pb.GetDueJobsRequest(page=pb.Page(token="x"))),
    "inputs": ("TriggerJob", pb.TriggerJobRequest(job="tidy", inputs_json="{")),
    "inputs twice": ("TriggerJob", pb.TriggerJobRequest(job="tidy", inputs_json='{"a":1,"a":2}')),
    "inputs that are no object": ("TriggerJob", pb.TriggerJobRequest(job="tidy", inputs_json="[]")),
    "deep inputs": ("TriggerJob", pb.TriggerJobRequest(job="tidy", inputs_json="[" * 100_000)),
    "priority": ("TriggerJob", pb.TriggerJobRequest(job="tidy", priority=10)),
    "key": ("TriggerJob", pb.TriggerJobRequest(job="tidy", idempotency_key="ä")),
    "time": ("TriggerJob", pb.TriggerJobRequest(job="tidy", at={"seconds": 2**62})),
    "status": ("UpdateRunStatus", pb.UpdateRunStatusRequest(run="r_1")),
    "unknown status": ("UpdateRunStatus", UNKNOWN_STATUS),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_nonsense_is_an_invalid_argument(calls: Calls, what: str) -> None:
    await calls.submit(job_file(job(schedule=FAR)))

    status, problem = await calls.refused(*REFUSED[what])

    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert problem.message


async def test_a_file_that_is_too_large_is_refused(calls: Calls) -> None:
    status, problem = await calls.refused("SubmitJob", pb.SubmitJobRequest(yaml="#" * 10_001))

    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert problem.code == "too_large"


async def test_what_is_not_there_is_not_found(calls: Calls) -> None:
    status, problem = await calls.refused("GetJob", pb.GetJobRequest(job="nope"))

    assert (status, problem.code) == (grpc.StatusCode.NOT_FOUND, "job_not_found")


async def test_the_jobs_of_a_user_are_those_they_created(calls: Calls) -> None:
    await calls.submit(job_file(job("mine", schedule=FAR)))
    await calls.submit(job_file(job("theirs", schedule=FAR)), user="editor")

    mine = await calls("RetrieveAllJobs", pb.RetrieveAllJobsRequest())
    theirs = await calls("RetrieveAllJobs", pb.RetrieveAllJobsRequest(user="editor"))
    own = await calls("RetrieveAllJobs", pb.RetrieveAllJobsRequest(), Role.EDITOR)

    assert [each.name for each in mine.jobs] == ["mine"]
    assert [each.name for each in theirs.jobs] == ["theirs"]
    assert own == theirs


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("RetrieveAllJobs", pb.RetrieveAllJobsRequest(user="admin")),
        ("SubmitJob", pb.SubmitJobRequest(user="admin", yaml=job_file(job()))),
    ],
)
async def test_only_an_admin_may_ask_for_others(calls: Calls, name: str, request_: object) -> None:
    status, _ = await calls.refused(name, request_, Role.EDITOR)

    assert status is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("user", ["scheduler", "rota up", "ann/key", "ann "])
async def test_an_admin_submits_for_nobody_who_reads_as_somebody_else(
    calls: Calls, user: str
) -> None:
    request = pb.SubmitJobRequest(user=user, yaml=job_file(job()))

    status, _ = await calls.refused("SubmitJob", request)

    assert status is grpc.StatusCode.INVALID_ARGUMENT


async def test_only_a_job_of_an_admin_brings_a_share_with_it(calls: Calls) -> None:
    shared = pb.SubmitJobRequest(yaml=job_file(job(share="team")))
    await calls.submit(job_file(job("other", schedule=FAR)))
    moved = job_file(job("other", schedule=FAR, share="team"))
    update = pb.UpdateJobRequest(job="other", yaml=moved)

    refusals = [
        await calls.refused("SubmitJob", shared, Role.EDITOR),
        await calls.refused("UpdateJob", update, Role.EDITOR),
    ]
    await calls("SubmitJob", shared)
    await calls("UpdateJob", update, Role.EDITOR)

    for status, problem in refusals:
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert problem.faults[0].message == 'there is no share "team"'


async def test_lists_come_in_pages(calls: Calls) -> None:
    await calls.submit(job_file(*(job(f"job-{n}", schedule=FAR) for n in range(5))))
    names, token = [], ""
    while True:
        page = pb.Page(size=2, token=token)
        answer = await calls("RetrieveAllJobs", pb.RetrieveAllJobsRequest(page=page))
        names += [each.name for each in answer.jobs]
        token = answer.next_page_token
        if not token:
            break

    assert names == [f"job-{n}" for n in range(5)]


async def test_a_job_is_updated_if_it_is_still_the_one_that_was_seen(calls: Calls) -> None:
    await calls.submit(job_file(job(schedule=FAR)))
    seen = (await calls("GetJob", pb.GetJobRequest(job="tidy"))).job
    changed = job_file(job(schedule=FAR, description="newer"))

    updated = await calls(
        "UpdateJob", pb.UpdateJobRequest(job="tidy", yaml=changed, etag=seen.etag)
    )

    status, _ = await calls.refused(
        "UpdateJob", pb.UpdateJobRequest(job="tidy", yaml=changed, etag=seen.etag)
    )
    assert (updated.job.id, updated.job.version) == (seen.id, seen.version + 1)
    assert "newer" in updated.job.yaml
    assert status is grpc.StatusCode.ABORTED


@pytest.mark.parametrize("jobs", [[], [job("other")], [job(), job("other")]])
async def test_an_update_is_of_that_job_alone(calls: Calls, jobs: list[dict[str, object]]) -> None:
    await calls.submit(job_file(job(schedule=FAR)))

    status, _ = await calls.refused(
        "UpdateJob", pb.UpdateJobRequest(job="tidy", yaml=job_file(*jobs))
    )

    assert status is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_deleted_job_is_gone(calls: Calls) -> None:
    await calls.submit(job_file(job(schedule=FAR)))

    await calls("DeleteJob", pb.DeleteJobRequest(job="tidy"))

    status, _ = await calls.refused("GetJob", pb.GetJobRequest(job="tidy"))
    assert status is grpc.StatusCode.NOT_FOUND


async def test_the_history_of_a_job_has_its_runs_newest_first(calls: Calls) -> None:
    await calls.submit(job_file(job(schedule=FAR)))
    first = await calls.served.run_through()
    second = await calls("TriggerJob", pb.TriggerJobRequest(job="tidy"))

    history = await calls("GetExecHistory", pb.GetExecHistoryRequest(job="tidy"))

    assert [run.id for run in history.runs] == [second.run.id, first]
    assert history.runs[1].state == pb.RUN_STATE_COMPLETED
    assert (history.runs[1].exit_code, history.runs[1].worker) == (0, "worker-1")
    assert history.runs[1].HasField("ended_at")
    assert not history.runs[0].HasField("exit_code")


async def test_the_history_of_a_deleted_job_stays(calls: Calls) -> None:
    await calls.submit(job_file(job(schedule=FAR)))
    run = await calls.served.run_through()
    await calls("DeleteJob", pb.DeleteJobRequest(job="tidy"))

    history = await calls("GetExecHistory", pb.GetExecHistoryRequest(job="tidy"))

    assert [each.id for each in history.runs] == [run]


async def test_jobs_of_the_next_five_minutes_are_told_with_their_times(calls: Calls) -> None:
    await calls.submit(
        job_file(
            job("soon", schedule="every 2m", expect="40s"),
            job("later", schedule="every 6m"),
            job("far", schedule=FAR),
            job("never"),
        )
    )

    answer = await calls("GetJobsInNext5Mins", pb.GetJobsInNext5MinsRequest())

    [soon] = answer.jobs
    first, second = (due.ToDatetime(UTC) for due in soon.due_at)
    assert soon.name == "soon"
    assert second - first == timedelta(minutes=2)
    assert soon.expected.ToTimedelta() == timedelta(seconds=40)
    assert [start.waits_for for start in soon.starts] == ["worker:default", "job"]


async def test_the_next_jobs_come_with_their_predicted_starts(calls: Calls) -> None:
    await calls.submit(job_file(job("soon", schedule="every 4m")))
    await calls.served.worker()

    [soon] = (await calls("GetJobsInNext5Mins", pb.GetJobsInNext5MinsRequest())).jobs

    assert [start.start_at for start in soon.starts] == list(soon.due_at)


async def test_running_jobs_are_those_a_worker_holds(calls: Calls) -> None:
    await calls.submit(job_file(job(), job("waits")))
    worker = await calls.served.worker()
    work = await worker.claim()
    await worker.finish(next(each for each in work))

    answer = await calls("GetRunningJobs", pb.GetRunningJobsRequest())

    [running] = answer.runs
    assert running.id == work[1].run
    assert (running.state, running.worker) == (pb.RUN_STATE_PROCESSING, "worker-1")


async def test_a_job_is_triggered_with_inputs_at_a_time(calls: Calls) -> None:
    text = job_file(job(schedule=FAR, inputs={"host": {"type": "string"}}))
    await calls("SubmitJob", pb.SubmitJobRequest(yaml=text))
    request = pb.TriggerJobRequest(
        job="tidy", inputs_json='{"host": "web-1"}', priority=9, idempotency_key="k"
    )
    request.at.FromDatetime(datetime(2098, 1, 1, tzinfo=UTC))

    first = (await calls("TriggerJob", request, Role.OPERATOR)).run
    again = (await calls("TriggerJob", request, Role.OPERATOR)).run

    assert first == again
    assert first.state == pb.RUN_STATE_SCHEDULED
    assert (json.loads(first.inputs_json), first.created_by) == ({"host": "web-1"}, "operator")
    assert first.due_at.ToDatetime(UTC).year == 2098


async def lost(calls: Calls) -> str:
    """A run at most once whose worker vanished in the middle."""
    answer = await calls.submit(job_file(job(delivery="at_most_once")))
    worker = await calls.served.worker()
    await worker.claim()
    await calls.served.engine.store.end_session(worker.session)
    return str(answer.jobs[0].run_id)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (pb.REPORTED_STATUS_COMPLETED, RunState.COMPLETED),
        (pb.REPORTED_STATUS_FAILED, RunState.FAILED),
        (pb.REPORTED_STATUS_RETRY, RunState.SCHEDULED),
    ],
)
async def test_what_became_of_an_unknown_run_can_be_told(
    calls: Calls, status: pb.ReportedStatus, state: RunState
) -> None:
    request = pb.UpdateRunStatusRequest(run=await lost(calls), status=status)

    answer = await calls("UpdateRunStatus", request, Role.OPERATOR)

    assert pb.RunState.Name(answer.run.state) == f"RUN_STATE_{state}"


async def test_the_status_of_any_other_run_is_not_for_callers_to_say(calls: Calls) -> None:
    submitted = await calls.submit(job_file(job()))
    request = pb.UpdateRunStatusRequest(
        run=submitted.jobs[0].run_id, status=pb.REPORTED_STATUS_COMPLETED
    )

    status, problem = await calls.refused("UpdateRunStatus", request)

    assert status is grpc.StatusCode.FAILED_PRECONDITION
    assert "queued" in problem.message


async def test_a_watcher_goes_on_where_it_left_off(calls: Calls) -> None:
    await calls.submit(job_file(job(schedule=FAR)))
    stream = calls.begin("Watch", pb.WatchRequest(after=0))
    seen = list((await stream.read()).events)
    stream.cancel()
    await calls.served.trigger()

    resumed = calls.begin("Watch", pb.WatchRequest(after=seen[-1].position))
    news = (await resumed.read()).events

    assert "job.created" in [event.kind for event in seen]
    assert all(event.position > seen[-1].position for event in news)
    assert any(event.kind.startswith("run.") for event in news)
    resumed.cancel()


async def test_a_watcher_without_a_position_sees_what_is_to_come(calls: Calls) -> None:
    await calls.submit(job_file(job(schedule=FAR)))
    stream = calls.begin("Watch", pb.WatchRequest())
    quiet = await stream.read()
    run = await calls.served.trigger()

    news = await stream.read()

    assert list(quiet.events) == []
    assert any(run["id"] in event.ids for event in news.events)
    stream.cancel()


async def read_all(stream: Any) -> None:
    while await stream.read():
        pass


async def test_a_watcher_whose_token_is_revoked_sees_no_more(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_SLOW_POLL", timedelta(milliseconds=5))
    store = calls.served.engine.store
    token_id, secret = await create_token(store, name="spy", role=Role.VIEWER, actor="test")
    calls.served.secrets[Role.VIEWER] = secret
    stream = calls.begin("Watch", pb.WatchRequest(), Role.VIEWER)
    await stream.read()
    await store.revoke_token(token_id, actor="test")

    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await read_all(stream)  # some may have been on their way

    assert problem_of(refusal.value)[0] is grpc.StatusCode.UNAUTHENTICATED


async def news_of(stream: Any) -> list[pb.RunNews]:
    """All news of a run but the time, up to its end."""
    found: list[pb.RunNews] = []
    while not found or found[-1].WhichOneof("what") != "end":
        news = (await stream.read()).news
        if news.WhichOneof("what") != "time":
            found.append(news)
    return found


async def test_a_run_is_watched_to_its_end_and_from_any_place_on(calls: Calls) -> None:
    await calls.served.apply(job())
    run = await calls.served.trigger()
    worker = await calls.served.worker()
    [work] = await worker.claim()
    step = StepOutcome("build", "failed", exit_code=3, started_at=1_000_000, lines=2)
    skipped = StepOutcome("set up", "skipped")
    await worker.finish(work, "FAILED", printed=b"one\ntwo\n", steps=(skipped, step))

    found = await news_of(calls.begin("Watch", pb.WatchRequest(run=run["id"], lines=1)))
    [again] = [news for news in found if news.WhichOneof("what") == "lines"]
    rest = await news_of(calls.begin("Watch", pb.WatchRequest(run=run["id"], place=again.place)))

    kinds = [news.WhichOneof("what") for news in found]
    assert kinds == ["run", "step", "step", "lines", "step", "attempt", "end"]
    assert (again.lines.skipped, [line.text for line in again.lines.lines]) == (1, ["two"])
    assert (found[4].step.number, found[4].step.step.result) == (1, "failed")
    assert found[4].step.step.exit_code == 3
    assert (found[5].attempt.result, len(found[5].attempt.steps)) == ("FAILED", 2)
    assert found[-1].end.state == pb.RUN_STATE_FAILED
    assert "lines" not in [news.WhichOneof("what") for news in rest]


async def test_a_run_is_shown_with_its_walls_and_what_it_used(calls: Calls) -> None:
    walls: dict[str, Any] = {
        "isolation": "sandbox",
        "network": "none",
        "limits": {"memory": "64MiB", "cpu": 0.5},
    }
    await calls.served.apply(job(**walls))
    run = await calls.served.trigger()
    offers = "wall sandbox", "network sandbox/none", "limit memory", "limit cpu"
    worker = await calls.served.worker(offers=tuple(Offer(*each.split()) for each in offers))
    [work] = await worker.claim()
    going = await calls("GetRun", pb.GetRunRequest(run=run["id"]))
    used: dict[str, Any] = {"cpu_seconds": 0.25, "max_memory_bytes": 1 << 26}
    step = StepOutcome("build", "failed", signal=9, cause="oom", **used)
    await worker.finish(work, "FAILED", steps=(step,), cause="oom", **used)

    shown = await calls("GetRun", pb.GetRunRequest(run=run["id"]))

    assert (going.run.state, [each.result for each in going.attempts]) == (
        pb.RUN_STATE_PROCESSING,
        [""],
    )
    assert (shown.isolation, shown.network, shown.run_as, shown.image) == (
        "sandbox",
        "none",
        "",
        "",
    )
    assert dict(shown.limits) == {"memory": "64MiB", "cpu": "0.5"}
    assert (shown.run.state, shown.run.cause) == (pb.RUN_STATE_FAILED, "oom")
    [attempt] = shown.attempts
    [told] = attempt.steps
    assert (told.signal, told.cause, told.cpu_seconds, told.max_memory_bytes) == (
        *(9, "oom"),
        *(0.25, 1 << 26),
    )
    assert (attempt.cpu_seconds, attempt.max_memory_bytes) == (0.25, 1 << 26)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (pb.WatchRequest(run="r_nothing"), grpc.StatusCode.NOT_FOUND),
        (pb.WatchRequest(run="r_nothing", project="*"), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_run_that_is_not_there_cannot_be_watched(
    calls: Calls, request_: pb.WatchRequest, status: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await calls.begin("Watch", request_).read()

    assert problem_of(refused.value)[0] is status


ROLES = {
    "SubmitJob": (pb.SubmitJobRequest(), Role.EDITOR),
    "RetrieveAllJobs": (pb.RetrieveAllJobsRequest(), Role.VIEWER),
    "UpdateJob": (pb.UpdateJobRequest(), Role.EDITOR),
    "DeleteJob": (pb.DeleteJobRequest(), Role.EDITOR),
    "GetJob": (pb.GetJobRequest(), Role.VIEWER),
    "GetExecHistory": (pb.GetExecHistoryRequest(), Role.VIEWER),
    "GetRun": (pb.GetRunRequest(), Role.VIEWER),
    "GetJobsInNext5Mins": (pb.GetJobsInNext5MinsRequest(), Role.VIEWER),
    "GetDueJobs": (pb.GetDueJobsRequest(), Role.VIEWER),
    "GetRunningJobs": (pb.GetRunningJobsRequest(), Role.VIEWER),
    "TriggerJob": (pb.TriggerJobRequest(), Role.OPERATOR),
    "UpdateRunStatus": (pb.UpdateRunStatusRequest(), Role.OPERATOR),
    "CancelRun": (pb.CancelRunRequest(), Role.OPERATOR),
    "Watch": (pb.WatchRequest(), Role.VIEWER),
}


def test_the_service_has_exactly_the_calls_of_the_specification() -> None:
    service = pb.DESCRIPTOR.services_by_name["Scheduler"]

    assert [method.name for method in service.methods] == list(ROLES)


@pytest.mark.parametrize("name", ROLES)
async def test_every_call_needs_a_credential_and_its_role(calls: Calls, name: str) -> None:
    request, role = ROLES[name]
    below = [each for each in Role if list(Role).index(each) < list(Role).index(role)]

    nobody = await _status(calls, name, request, None)
    lesser = [await _status(calls, name, request, each) for each in below]

    assert nobody is grpc.StatusCode.UNAUTHENTICATED
    assert set(lesser) <= {grpc.StatusCode.PERMISSION_DENIED}


async def _status(calls: Calls, name: str, request: object, role: Role | None) -> grpc.StatusCode:
    call = calls.begin(name, request, role)
    code: grpc.StatusCode = await call.code()
    return code


async def test_large_files_are_parsed_by_a_child_one_at_a_time(calls: Calls) -> None:
    yaml = job_file(job()) + " " * 9_000
    pool: ParsingPool = calls.served.app.state.parsing

    async def take() -> None:
        async with pool.turn(Role.ADMIN):
            pass

    submitted = await calls.submit(yaml)
    async with asyncio.TaskGroup() as group, pool.turn(Role.ADMIN):
        for _ in range(pool.limits.waiting_of_caller):
            group.create_task(take())
        refused = await calls.refused("SubmitJob", pb.SubmitJobRequest(yaml=yaml))

    assert [each.name for each in submitted.jobs] == ["tidy"]
    assert len(pool.pids) == 1
    assert (refused[0], refused[1].code) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "too_many_files",
    )
