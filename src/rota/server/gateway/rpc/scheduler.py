"""`rota.v1.Scheduler`: calls of programs, over the same operations as REST."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import grpc
import structlog

from rota.contracts import client_pb2 as pb
from rota.contracts.client_pb2_grpc import SchedulerServicer, add_SchedulerServicer_to_server
from rota.domain.access import INSTALLATION, Role, require_verb
from rota.domain.errors import Denied, Invalid, RotaError
from rota.domain.job import Job
from rota.domain.jobfile import JobFile
from rota.domain.run import Run
from rota.domain.spec import EXTERNAL_POOL
from rota.domain.states import RunState
from rota.operations import definitions, external, runs
from rota.operations.engine import Engine
from rota.operations.forecasts import upcoming_jobs
from rota.operations.output import follow_events
from rota.operations.runs import submit_file
from rota.operations.tokens import Caller, require_free_handle
from rota.operations.watching import MOST_LINES, watch_run
from rota.ports.records import JobQuery, RunQuery
from rota.server.gateway.auth import (
    APPLIES,
    CANCELS,
    EDITS,
    READS,
    RESOLVES,
    TRIGGERS,
    TrustedTokens,
)
from rota.server.gateway.filters import (
    MAX_INTEGER,
    creator_meant,
    decode_cursor,
    encode_cursor,
)
from rota.server.gateway.jobfiles import require_editor
from rota.server.gateway.parameters import GatewaySettings, require_match
from rota.server.gateway.parsers import parse_inputs, parse_job_file
from rota.server.gateway.parsing import ParsingPool
from rota.server.gateway.proxies import TrustedProxies
from rota.server.gateway.rpc import messages
from rota.server.gateway.rpc.messages import (
    delivery_value,
    event_message,
    job_message,
    run_detail_message,
    run_message,
    upcoming_job,
)
from rota.server.gateway.rpc.server import (
    Context,
    check_declared,
    declare,
    known,
    needs,
    note,
    refuse,
)
from rota.server.gateway.runs import reported_answer, run_answer, run_detail, run_page
from rota.server.gateway.turns import OpenStreams
from rota.server.gateway.watching import news_answer, place_in

Projects: TypeAlias = tuple[str, ...] | None
_OfUser = (
    pb.GetExecHistoryRequest
    | pb.GetJobsInNext5MinsRequest
    | pb.GetDueJobsRequest
    | pb.GetRunningJobsRequest
)
_HORIZON = timedelta(minutes=5)
_DUE = (RunState.BLOCKED, RunState.QUEUED)
_RUNNING = (RunState.CLAIMED, RunState.PROCESSING)
_RESOLVED = {
    pb.REPORTED_STATUS_COMPLETED: RunState.COMPLETED,
    pb.REPORTED_STATUS_FAILED: RunState.FAILED,
    pb.REPORTED_STATUS_RETRY: RunState.SCHEDULED,
}
_TOLD = {
    *_RESOLVED,
    pb.REPORTED_STATUS_PROCESSING,
    pb.REPORTED_STATUS_CANCELLED,
}
_log = structlog.get_logger("rota.server.gateway")


class SchedulerService(SchedulerServicer):
    """Service with all calls of `contracts/rota/v1/client.proto`."""

    def __init__(
        self,
        engine: Engine,
        settings: GatewaySettings,
        tokens: TrustedTokens,
        parsing: ParsingPool,
        streams: OpenStreams,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._parsing = parsing
        self._streams = streams
        self.tokens = tokens
        self.proxies = TrustedProxies(settings.trusted_proxies)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a server that has not been started yet."""
        check_declared(self, pb.DESCRIPTOR.services_by_name["Scheduler"])
        add_SchedulerServicer_to_server(self, server)

    @needs(APPLIES)
    async def SubmitJob(self, request: pb.SubmitJobRequest, caller: Caller) -> pb.SubmitJobResponse:
        project = messages.project_of(request.project)
        match request.WhichOneof("definition"):
            case "yaml":
                text = request.yaml
            case "job":
                text = messages.job_file_of_draft(request.job)
            case _:
                raise messages.malformed("a job or a job file is needed")
        key = messages.idempotency_key(request.idempotency_key)
        file = await self._file(text, caller, project)
        await require_editor(self.tokens, caller, file)
        [user] = {_user(request.user, caller, each) for each in file.projects}
        if user != caller.name:
            require_free_handle(user)
        submitted = await submit_file(
            self._engine,
            file,
            actor=user,
            is_admin=caller.is_installation_admin,
            idempotency_key=key,
        )
        if user != caller.name:
            _log.info("jobs submitted for another", user=user, by=caller.name)
        deliveries = {entry.name: delivery_value(entry.spec.delivery) for entry in file.jobs}
        return pb.SubmitJobResponse(
            jobs=[
                pb.SubmittedJob(
                    id=job.id, name=job.name, run_id=job.run or "", delivery=deliveries[job.name]
                )
                for job in submitted
            ]
        )

    @needs(READS)
    async def RetrieveAllJobs(
        self, request: pb.RetrieveAllJobsRequest, caller: Caller
    ) -> pb.RetrieveAllJobsResponse:
        size = messages.page_size(request.page)
        project = messages.project_of(request.project)
        query = JobQuery(
            project=project,
            created_by=_user(request.user, caller, project),
            after_name=decode_cursor("jobs", request.page.token or None, ""),
            limit=size + 1,
        )
        found = await self._engine.store.jobs(query)
        more = encode_cursor("jobs", found[size - 1].name) if len(found) > size else ""
        return pb.RetrieveAllJobsResponse(
            jobs=[job_message(job) for job in found[:size]], next_page_token=more
        )

    @needs(EDITS)
    async def UpdateJob(self, request: pb.UpdateJobRequest, caller: Caller) -> pb.UpdateJobResponse:
        job = await self._job(request.project, request.job)
        require_match(request.etag, job.digest)
        file = await self._file(request.yaml, caller, job.project, job.set_name)
        if not _is_alone(file, job):
            raise messages.malformed(f"yaml: a file with the job {job.name} alone is needed")
        await definitions.apply(
            self._engine, file, actor=caller.name, is_admin=caller.is_installation_admin
        )
        return pb.UpdateJobResponse(job=job_message(await self._job(job.project, job.id)))

    @needs(EDITS)
    async def DeleteJob(self, request: pb.DeleteJobRequest, caller: Caller) -> pb.DeleteJobResponse:
        job = await self._job(request.project, request.job)
        require_match(request.etag, job.digest)
        await definitions.delete(self._engine, job, actor=caller.name)
        return pb.DeleteJobResponse()

    @needs(READS)
    async def GetJob(self, request: pb.GetJobRequest, _: Caller) -> pb.GetJobResponse:
        return pb.GetJobResponse(job=job_message(await self._job(request.project, request.job)))

    @needs(READS)
    async def GetExecHistory(
        self, request: pb.GetExecHistoryRequest, caller: Caller
    ) -> pb.GetExecHistoryResponse:
        name, project = messages.reference(request.job, "job"), messages.project_of(request.project)
        job = await definitions.find_past_job(self._engine, name, project=project)
        query = RunQuery(project=project, job_id=job.id, created_by=_creator(request, caller))
        found, more = await self._runs(request.page, query)
        return pb.GetExecHistoryResponse(runs=found, next_page_token=more)

    @needs(READS)
    async def GetRun(self, request: pb.GetRunRequest, _: Caller) -> pb.GetRunResponse:
        run = await self._run(request.project, request.run)
        return run_detail_message(await run_detail(self._engine, run))

    @needs(READS)
    async def GetJobsInNext5Mins(
        self, request: pb.GetJobsInNext5MinsRequest, caller: Caller
    ) -> pb.GetJobsInNext5MinsResponse:
        project, creator = messages.project_of(request.project), _creator(request, caller)
        is_member = caller.projects is not None
        forecast, found = await upcoming_jobs(
            self._engine, project, _HORIZON, creator, is_member=is_member
        )
        return pb.GetJobsInNext5MinsResponse(jobs=[upcoming_job(forecast, job) for job in found])

    @needs(READS)
    async def GetDueJobs(
        self, request: pb.GetDueJobsRequest, caller: Caller
    ) -> pb.GetDueJobsResponse:
        project, creator = messages.project_of(request.project), _creator(request, caller)
        query = RunQuery(project=project, states=_DUE, created_by=creator)
        found, more = await self._runs(request.page, query)
        return pb.GetDueJobsResponse(runs=found, next_page_token=more)

    @needs(READS)
    async def GetRunningJobs(
        self, request: pb.GetRunningJobsRequest, caller: Caller
    ) -> pb.GetRunningJobsResponse:
        project, creator = messages.project_of(request.project), _creator(request, caller)
        query = RunQuery(project=project, states=_RUNNING, created_by=creator)
        found, more = await self._runs(request.page, query)
        return pb.GetRunningJobsResponse(runs=found, next_page_token=more)

    @needs(TRIGGERS)
    async def TriggerJob(
        self, request: pb.TriggerJobRequest, caller: Caller
    ) -> pb.TriggerJobResponse:
        options = _trigger_options(request)
        job = await self._job(request.project, request.job)
        run, _ = await runs.trigger(self._engine, job, options, actor=caller.name)
        return pb.TriggerJobResponse(run=run_message(await run_answer(self._engine, run)))

    @needs(RESOLVES, takes_reports=True)
    async def UpdateRunStatus(
        self, request: pb.UpdateRunStatusRequest, caller: Caller
    ) -> pb.UpdateRunStatusResponse:
        if request.status not in _TOLD:
            raise messages.malformed("status: one of ReportedStatus is needed")
        project = messages.project_of(request.project)
        name = messages.reference(request.run, "run")
        run = await external.reported_run(self._engine, caller, name, project=project)
        if run.pool == EXTERNAL_POOL and (caller.reports or run.state is not RunState.UNKNOWN):
            return await self._reported(request, run, caller)
        state = _RESOLVED.get(request.status)
        if state is None:
            raise messages.malformed("status: COMPLETED, FAILED or RETRY is needed")
        run = await runs.resolve(self._engine, run, state, actor=caller.name)
        return pb.UpdateRunStatusResponse(run=run_message(await run_answer(self._engine, run)))

    async def _reported(
        self, request: pb.UpdateRunStatusRequest, run: Run, caller: Caller
    ) -> pb.UpdateRunStatusResponse:
        said = external.said_by(caller, messages.report_of(request))
        taken = await external.report(self._engine, run, said, actor=caller.name)
        answer = messages.accepted_report(request, reported_answer(said, taken))
        if caller.reports is not None:
            return pb.UpdateRunStatusResponse(report=answer)
        run = await runs.find_run(self._engine, run.id, project=run.project)
        shown = run_message(await run_answer(self._engine, run))
        return pb.UpdateRunStatusResponse(run=shown, report=answer)

    @needs(CANCELS)
    async def CancelRun(self, request: pb.CancelRunRequest, caller: Caller) -> pb.CancelRunResponse:
        run = await self._run(request.project, request.run)
        run = await runs.cancel(self._engine, run, actor=caller.name)
        return pb.CancelRunResponse(run=run_message(await run_answer(self._engine, run)))

    @declare(READS)
    async def Watch(self, request: pb.WatchRequest, context: Context) -> None:
        began = time.perf_counter()
        caller: Caller | None = None
        try:
            caller, projects = await self._watcher(request, context)
            with self._streams.one_of(caller.name):
                if request.run:
                    await self._follow_run(request, context)
                else:
                    await self._follow(request, projects, context)
        except RotaError as error:
            note("Watch", caller, began, error)
            await refuse(context, error)

    async def _follow(self, request: pb.WatchRequest, projects: Projects, context: Context) -> None:
        async with aclosing(follow_events(self._engine, _position(request), projects)) as batches:
            async for events in batches:
                _, seen = await self._watcher(request, context)
                if seen != projects:  # the right to look may end, or change
                    raise Denied("your roles have changed", code="forbidden", hint="watch anew")
                await context.write(pb.WatchResponse(events=map(event_message, events)))

    async def _follow_run(self, request: pb.WatchRequest, context: Context) -> None:
        run = await self._run(request.project, request.run)
        lines = min(request.lines, MOST_LINES) if request.HasField("lines") else MOST_LINES
        place = place_in(request.place) if request.place else None
        async with aclosing(watch_run(self._engine, run, place, lines)) as told:
            async for each in told:
                await self._watcher(request, context)  # the right to look may end
                named = await news_answer(self._engine, run, each.news)
                news = messages.news_message(*named, str(each.place))
                await context.write(pb.WatchResponse(news=news))

    async def _watcher(self, request: pb.WatchRequest, context: Context) -> tuple[Caller, Projects]:
        """Return who watches, and the projects whose events they may see; None: all there are."""
        caller = await known(self, context)
        if request.project == INSTALLATION:
            require_verb(caller.rights, READS.verb)
            return caller, caller.projects
        project = messages.project_of(request.project)
        await READS.admit(self.tokens, caller, project)
        return caller, (project,)

    async def _file(
        self, text: str, caller: Caller, project: str, name: str | None = None
    ) -> JobFile:
        """Read the job file of a request."""
        body, limit = text.encode(), self._settings.max_body_bytes
        if len(body) > limit:
            raise Invalid(f"a job file may have {limit:,} bytes", code="too_large")
        read = partial(self._parsing.parse, parse_job_file, body, name=name, project=project)
        if len(body) <= self._parsing.limits.in_place:
            return await read()
        async with self._parsing.turn(caller.name):
            return await read()

    async def _job(self, project: str, job: str) -> Job:
        name = messages.reference(job, "job")
        return await definitions.find_job(self._engine, name, project=messages.project_of(project))

    async def _run(self, project: str, run: str) -> Run:
        name = messages.reference(run, "run")
        return await runs.find_run(self._engine, name, project=messages.project_of(project))

    async def _runs(self, page: pb.Page, query: RunQuery) -> tuple[list[pb.Run], str]:
        """Return a page of runs, newest first, and the cursor of the next one."""
        before = decode_cursor("runs", page.token or None, MAX_INTEGER)
        query = replace(query, before_seq=before)
        found = await run_page(self._engine, query, messages.page_size(page))
        return [run_message(run) for run in found], found.next_cursor or ""


def _is_alone(file: JobFile, job: Job) -> bool:
    """Return whether a file is about this job and nothing else.

    The file's own project may be another than that of its jobs: calendars, limits and carts of the
    file would go there, and nobody has asked whether the caller may change that one.
    """
    named = [(entry.spec.project, entry.name) for entry in file.jobs]
    is_more = file.calendars or file.carts or file.declarations
    return (file.project, named) == (job.project, [(job.project, job.name)]) and not is_more


def _user(user: str, caller: Caller, project: str) -> str:
    """Return the user that a call is about: the caller, or for an admin anybody."""
    if user in {"", caller.name}:
        return caller.name
    caller.require(Role.ADMIN, project)
    return messages.reference(user, "user")


def _creator(request: _OfUser, caller: Caller) -> str | None:
    """Return whose runs or jobs a call is about; None: everybody's."""
    project = messages.project_of(request.project)
    return creator_meant(caller, project, messages.user_of(request.created_by))


def _trigger_options(request: pb.TriggerJobRequest) -> runs.TriggerOptions:
    if request.priority > 9:
        raise messages.malformed("priority: 0 to 9")
    return runs.TriggerOptions(
        inputs=parse_inputs(request.inputs_json),
        at=messages.instant_of(request.at, "at") if request.HasField("at") else None,
        priority=request.priority if request.HasField("priority") else None,
        idempotency_key=messages.idempotency_key(request.idempotency_key),
    )


def _position(request: pb.WatchRequest) -> int | None:
    if not request.HasField("after"):
        return None
    if request.after > MAX_INTEGER:
        raise messages.malformed("after: not the position of an event")
    return request.after
