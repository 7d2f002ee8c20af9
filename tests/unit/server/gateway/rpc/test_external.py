"""Reports of other systems, and cancels, by gRPC."""

from __future__ import annotations

import grpc
import pytest

from rota.contracts import client_pb2 as pb
from rota.domain.access import Role
from rota.domain.credentials import SecretKind, new_secret
from tests.unit.server.gateway.rpc.conftest import Calls, problem_of
from tests.unit.server.gateway.served import job, job_file
from tests.unit.server.gateway.test_external import begun, token_of

pytestmark = pytest.mark.anyio

PROCESSING, COMPLETED = pb.REPORTED_STATUS_PROCESSING, pb.REPORTED_STATUS_COMPLETED


async def refused_with(
    calls: Calls, request: pb.UpdateRunStatusRequest, token: str
) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await calls.begin_with("UpdateRunStatus", request, token)
    status, problem = problem_of(refusal.value)
    return status, problem.code


async def test_a_system_reports_with_its_token_to_the_end(calls: Calls) -> None:
    run = await begun(calls.served)
    token = await token_of(calls.served, run)
    going = pb.UpdateRunStatusRequest(
        run=run,
        status=PROCESSING,
        number=1,
        progress=pb.RunProgress(done=1, total=2, message="half"),
        output="compiled\n",
    )
    end = pb.UpdateRunStatusRequest(run=run, status=COMPLETED, number=2, outputs_json='{"id": 7}')

    await calls.begin_with("UpdateRunStatus", going, token)
    shown = (await calls("GetRun", pb.GetRunRequest(run=run))).run
    first = await calls.begin_with("UpdateRunStatus", end, token)
    again = await calls.begin_with("UpdateRunStatus", end, token)

    ended = (await calls("GetRun", pb.GetRunRequest(run=run))).run
    assert shown.state == pb.RUN_STATE_PROCESSING
    assert first == again
    assert not first.HasField("run")
    assert (first.report.run, first.report.attempt, first.report.number) == (run, 1, 2)
    assert first.report.status == COMPLETED
    assert (ended.state, ended.outputs_json) == (pb.RUN_STATE_COMPLETED, '{"id": 7}')


async def test_an_operator_reports_without_a_number_and_sees_the_run(calls: Calls) -> None:
    run = await begun(calls.served)
    request = pb.UpdateRunStatusRequest(
        run=run, status=pb.REPORTED_STATUS_FAILED, message="no disk"
    )

    answer = await calls("UpdateRunStatus", request, Role.OPERATOR)

    assert (answer.run.state, answer.run.message) == (pb.RUN_STATE_FAILED, "no disk")
    assert not answer.report.HasField("number")


async def test_what_comes_late_or_from_others_changes_nothing(calls: Calls) -> None:
    run = await begun(calls.served)
    token = await token_of(calls.served, run)
    other = str((await calls.served.trigger("build"))["id"])

    def said(number: int, name: str = run) -> pb.UpdateRunStatusRequest:
        return pb.UpdateRunStatusRequest(run=name, status=PROCESSING, number=number)

    await calls.begin_with("UpdateRunStatus", said(5), token)

    assert await refused_with(calls, said(4), token) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "report_stale",
    )
    assert await refused_with(calls, said(6, other), token) == (
        grpc.StatusCode.NOT_FOUND,
        "run_not_found",
    )
    assert await refused_with(calls, said(6), new_secret(SecretKind.REPORT)) == (
        grpc.StatusCode.UNAUTHENTICATED,
        "unauthenticated",
    )
    viewer = calls.served.secrets[Role.VIEWER]
    assert (await refused_with(calls, said(6), viewer))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_the_token_is_for_no_other_call(calls: Calls) -> None:
    run = await begun(calls.served)
    token = await token_of(calls.served, run)

    for name, request in (
        ("GetRun", pb.GetRunRequest(run=run)),
        ("CancelRun", pb.CancelRunRequest(run=run)),
        ("GetRunningJobs", pb.GetRunningJobsRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await calls.begin_with(name, request, token)
        assert refusal.value.code() is grpc.StatusCode.NOT_FOUND


async def test_only_work_of_other_systems_goes_on_by_report(calls: Calls) -> None:
    submitted = await calls.submit(job_file(job()))
    request = pb.UpdateRunStatusRequest(run=submitted.jobs[0].run_id, status=PROCESSING)

    status, _ = await calls.refused("UpdateRunStatus", request)

    assert status is grpc.StatusCode.INVALID_ARGUMENT


class TestCancel:
    async def test_a_run_that_waits_is_cancelled(self, calls: Calls) -> None:
        submitted = await calls.submit(job_file(job()))
        run = submitted.jobs[0].run_id

        answer = await calls("CancelRun", pb.CancelRunRequest(run=run), Role.OPERATOR)

        assert answer.run.state == pb.RUN_STATE_CANCELLED

    async def test_what_is_over_is_refused(self, calls: Calls) -> None:
        submitted = await calls.submit(job_file(job()))
        request = pb.CancelRunRequest(run=submitted.jobs[0].run_id)
        await calls("CancelRun", request)

        status, problem = await calls.refused("CancelRun", request)

        assert (status, problem.code) == (grpc.StatusCode.FAILED_PRECONDITION, "run_is_final")

    async def test_a_viewer_may_not(self, calls: Calls) -> None:
        submitted = await calls.submit(job_file(job()))
        request = pb.CancelRunRequest(run=submitted.jobs[0].run_id)

        status, _ = await calls.refused("CancelRun", request, Role.VIEWER)

        assert status is grpc.StatusCode.PERMISSION_DENIED
