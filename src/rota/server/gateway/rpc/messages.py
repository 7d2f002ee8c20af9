"""Answers as messages of `contracts/rota/v1`: fields of the same names have the same content."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from rota.api import runs as api
from rota.api.answers import Answer
from rota.contracts import carts_pb2, client_pb2
from rota.domain.carts.definition import CartItem
from rota.domain.carts.facts import ItemState
from rota.domain.errors import Invalid, RotaError
from rota.domain.external import Progress, ReportState, StatusReport
from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import NOTICED_SECONDS, Forecast, shortage_of
from rota.domain.job import Job
from rota.domain.jobfile import to_yaml
from rota.domain.quantities import format_duration, parse_duration
from rota.domain.spec import DEFAULT_PROJECT
from rota.operations.cart_changes import SELECTED, CartChange, ItemChange
from rota.operations.carts import CartPlan, CartRequest, CartView
from rota.operations.forecasts import UpcomingJob
from rota.operations.specs import words_if_readable
from rota.ports.carts import Cart, Item, Selection
from rota.ports.records import Event
from rota.server.gateway.cart_submissions import ItemIntake
from rota.server.gateway.carts import cart_answer, cart_plan_answer, detail_answer, item_answer
from rota.server.gateway.filters import MAX_LIMIT
from rota.server.gateway.jobs import job_answer
from rota.server.gateway.parsers import parse_inputs, parse_item_messages, read_header
from rota.server.gateway.parsing import ParsingPool
from rota.server.gateway.problems import MAX_DETAIL

M = TypeVar("M")
_MAX_FAULTS = 20  # trailing metadata has room for a few kilobytes
_MAX_FAULT = 200


def message(kind: type[M], answer: Answer, /, **others: Any) -> M:
    """Create a message from an answer's fields that have its field names, and `others`.

    A field `…_json` has the JSON of an answer's field without that ending; None is left out.
    """
    descriptor: Any = kind.DESCRIPTOR  # type: ignore[attr-defined]  # of every message
    fields = [field for field in descriptor.fields if field.name not in others]
    return kind(**{field.name: _field(field, answer) for field in fields}, **others)


def _field(field: FieldDescriptor, answer: Answer) -> Any:
    if field.name.endswith("_json"):
        value = getattr(answer, field.name.removesuffix("_json"))
        return None if value is None else _json(value)
    value = getattr(answer, field.name)
    if isinstance(value, tuple):
        return [_value(field, each) for each in value]
    return None if value is None else _value(field, value)


def _value(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Answer):
        return message(GetMessageClass(field.message_type), value)
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, Mapping):
        return dict(value)
    if field.enum_type is not None:
        return _enum_value(field.enum_type, value)
    if field.message_type is Duration.DESCRIPTOR:
        return _duration(parse_duration(value))
    return str(value) if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else value


def _enum_value(enum: Any, word: str) -> int:
    """Return the number of `RUN_STATE_QUEUED` for `QUEUED`; the first value has the prefix."""
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    number: int = enum.values_by_name[prefix + word.upper()].number
    return number


def timestamp(instant: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(instant)
    return message


def _duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message


def _json(value: Any) -> str:
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def run_message(run: api.Run) -> client_pb2.Run:
    return message(client_pb2.Run, run, message=run.waiting or run.message)


def job_message(job: Job) -> client_pb2.Job:
    answer = job_answer(job, job.next_at)
    document = to_yaml([dict(job.document)])
    return message(
        client_pb2.Job,
        answer,
        yaml=document,
        schedule=words_if_readable(job),
        limits=_limits(answer.limits),
    )


def run_detail_message(run: api.RunDetail) -> client_pb2.GetRunResponse:
    kind = client_pb2.GetRunResponse
    return message(kind, run, run=run_message(run), limits=_limits(run.limits))


def _limits(limits: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(most) for name, most in limits.items()}


def cart_message(cart: Cart) -> carts_pb2.Cart:
    return message(carts_pb2.Cart, cart_answer(cart))


def view_message(view: CartView) -> carts_pb2.GetCartResponse:
    return message(carts_pb2.GetCartResponse, detail_answer(view), cart=cart_message(view.cart))


def plan_message(plan: CartPlan) -> carts_pb2.PlanCartResponse:
    eta = None if plan.eta is None else _duration(plan.eta)
    return message(carts_pb2.PlanCartResponse, cart_plan_answer(plan), eta=eta)


def item_message(item: Item) -> carts_pb2.Item:
    return message(carts_pb2.Item, item_answer(item))


def event_message(event: Event) -> client_pb2.Event:
    return client_pb2.Event(
        position=event.seq,
        kind=event.kind,
        at=timestamp(event.at),
        actor=event.actor,
        project=event.project,
        ids=event.ids,
        data_json=_json(event.data),
    )


_NEWS: Mapping[str, type[Message]] = {
    "step": client_pb2.StepNews,
    "progress": client_pb2.ProgressNews,
    "lines": client_pb2.LinesNews,
    "attempt": client_pb2.RunAttempt,
}


def news_message(name: str, answer: Answer, place: str) -> client_pb2.RunNews:
    """Build the message of what happened to a run; `name` is that of its event in REST."""
    what: Any
    if isinstance(answer, api.TimeNews):
        what = timestamp(answer.at)
    elif isinstance(answer, api.Run):
        what = run_message(answer)
    else:
        what = message(_NEWS[name], answer)
    return client_pb2.RunNews(**{"place": place, name: what})


def problem_message(error: RotaError) -> client_pb2.Problem:
    faults = error.problems if isinstance(error, Invalid) else ()
    return client_pb2.Problem(
        code=error.code,
        message=error.message[:MAX_DETAIL],
        hint=error.hint,
        faults=[
            client_pb2.Fault(
                message=fault.message[:_MAX_FAULT],
                path=fault.path[:_MAX_FAULT],
                line=fault.line or 0,
                column=fault.column or 0,
                hint=fault.hint[:_MAX_FAULT],
            )
            for fault in faults[:_MAX_FAULTS]
        ],
    )


def delivery_value(delivery: str) -> client_pb2.Delivery:
    value: client_pb2.Delivery = client_pb2.Delivery.Value(f"DELIVERY_{delivery.upper()}")
    return value


def upcoming_job(forecast: Forecast, job: UpcomingJob) -> client_pb2.UpcomingJob:
    return client_pb2.UpcomingJob(
        id=job.id,
        name=job.name,
        due_at=[timestamp(forecast.instant(run.due_at)) for run in job.runs],
        starts=[_predicted(forecast, run) for run in job.runs],
        expected=_duration(job.expected),
    )


def _predicted(forecast: Forecast, run: RunAhead) -> client_pb2.PredictedStart:
    start_at = forecast.start_of(run)
    return client_pb2.PredictedStart(
        start_at=timestamp(start_at) if start_at else None,
        waits_for=shortage_of(run) if run.wait > NOTICED_SECONDS else "",
    )


_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_KEY = re.compile(r"[\x21-\x7e]{0,200}")
_MAX_REFERENCE = 200
_USUAL_SIZE = 100  # of a page
_SELECTED = {
    carts_pb2.RETRY_SELECTION_UNSPECIFIED: "failed",
    carts_pb2.RETRY_SELECTION_FAILED: "failed",
    carts_pb2.RETRY_SELECTION_FAILED_AND_SKIPPED: "failed+skipped",
    carts_pb2.RETRY_SELECTION_ALL: "all",
}
_MAX_CAUSE = 1_000
Parts = AsyncIterator[carts_pb2.SubmitCartRequest]


def project_of(project: str) -> str:
    """Return the project of a request, or the default one."""
    if project and not _PROJECT.fullmatch(project):
        raise malformed("project: letters, digits, '.', '_' and '-' are allowed")
    return project or DEFAULT_PROJECT


def reference(value: str, what: str) -> str:
    """Check a name or an id."""
    if not value or len(value) > _MAX_REFERENCE or not value.isprintable():
        raise malformed(f"{what}: a name or an id is needed")
    return value


def user_of(value: str) -> str:
    """Check the handle of a user; "": none is meant."""
    return reference(value, "created_by") if value else ""


def idempotency_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise malformed("idempotency_key: at most 200 visible ASCII characters are allowed")
    return key


def page_size(page: client_pb2.Page) -> int:
    return size_of(page.size, "page.size")


def size_of(size: int, what: str) -> int:
    """Return the page size of a request."""
    if size > MAX_LIMIT:
        raise malformed(f"{what}: {MAX_LIMIT:,} at most")
    return size or _USUAL_SIZE


def instant_of(message: Timestamp, what: str) -> datetime:
    try:
        instant: datetime = message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise malformed(f"{what}: not a time between the years 1 and 9999") from error
    return instant


def job_file_of_draft(draft: client_pb2.JobDraft) -> str:
    """Return the job file that a draft stands for; its problems are found when that is read."""
    job: dict[str, Any] = {"name": draft.name}
    if draft.schedule:
        job["schedule"] = list(draft.schedule)
    if draft.timezone:
        job["timezone"] = draft.timezone
    match draft.code.WhichOneof("code"):
        case "script":
            job["steps"] = [{"run": step} for step in draft.code.script.steps]
            if draft.code.script.path:
                job["source"] = {"path": draft.code.script.path}
        case "function":
            job |= {"type": "python", "function": draft.code.function}
        case "git":
            job |= _with_source("git", draft.code.git, ("url", "ref", "submodules", "credential"))
        case "upload":
            job |= _with_source("upload", draft.code.upload, ("digest", "name"))
        case _:
            raise malformed("job.code: a script, a function, git or an upload is needed")
    return json.dumps({"jobs": [job]})


def _with_source(kind: str, code: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a job whose code is fetched; what is empty is left out."""
    told = {name: getattr(code, name) for name in names if getattr(code, name)}
    steps = [{"run": step} for step in code.steps]
    return {"source": {kind: told}} | ({"steps": steps} if steps else {})


def malformed(message: str) -> Invalid:
    return Invalid(message, code="malformed")


_STATES = {
    client_pb2.REPORTED_STATUS_PROCESSING: ReportState.PROCESSING,
    client_pb2.REPORTED_STATUS_COMPLETED: ReportState.COMPLETED,
    client_pb2.REPORTED_STATUS_FAILED: ReportState.FAILED,
    client_pb2.REPORTED_STATUS_CANCELLED: ReportState.CANCELLED,
}


def report_of(request: client_pb2.UpdateRunStatusRequest) -> StatusReport:
    """Return what a request reports of a run that another system does."""
    state = _STATES.get(request.status)
    if state is None:
        raise malformed("status: PROCESSING, COMPLETED, FAILED or CANCELLED is needed")
    told = request.progress
    total = told.total if told.HasField("total") else None
    outputs = parse_inputs(request.outputs_json, "outputs_json") if request.outputs_json else None
    return StatusReport(
        state,
        request.number if request.HasField("number") else None,
        request.attempt if request.HasField("attempt") else None,
        request.message or told.message,
        Progress(told.done, total) if request.HasField("progress") else None,
        outputs,
        request.output,
    )


def accepted_report(
    request: client_pb2.UpdateRunStatusRequest, reported: api.Reported
) -> client_pb2.AcceptedReport:
    return message(client_pb2.AcceptedReport, reported, status=request.status)


async def submission(
    parts: Parts, max_bytes: int, parsing: ParsingPool, caller: str
) -> tuple[CartRequest, AsyncGenerator[CartItem, None]]:
    """Read the cart of a stream, and yield its items as they arrive."""
    first = await anext(parts, None)
    if first is None or first.WhichOneof("part") != "header":
        raise malformed("the first message has to be the header")
    header = read_header(_header(first.header))
    request = CartRequest(
        template=header.template,
        count=header.count,
        project=project_of(first.header.project),
        starts_at=header.starts_at,
        idempotency_key=idempotency_key(first.header.idempotency_key),
    )
    intake = ItemIntake(parsing, header.count)
    return request, _items(parts, max_bytes, intake, parsing, caller)


async def _items(
    parts: Parts, max_bytes: int, intake: ItemIntake, parsing: ParsingPool, caller: str
) -> AsyncGenerator[CartItem, None]:
    size, has_turn = 0, False
    async with AsyncExitStack() as stack:
        async for part in parts:
            if part.WhichOneof("part") != "items":
                raise malformed("items have to follow the header")
            size += part.ByteSize()
            if size > max_bytes:
                raise Invalid(f"the items have more than {max_bytes:,} bytes", code="too_large")
            if size > parsing.limits.in_place and not has_turn:
                await stack.enter_async_context(parsing.turn(caller))
                has_turn = True
            for item in await intake.take(parse_item_messages, part.items.SerializeToString()):
                yield item
        intake.finish()


def _header(header: carts_pb2.CartHeader) -> dict[str, Any]:
    """Return the header in the job file's vocabulary."""
    document = {
        "name": header.name,
        "job": header.job,
        "order": header.order,
        "group_size": [_quantity(size) for size in header.group_size],
        "max_parallel": header.max_parallel if header.HasField("max_parallel") else None,
        "failures": _failures(header.failures),
        "between": _between(header.between),
        "calendars": list(header.calendars),
        "rollback": header.rollback,
        "priority": header.priority if header.HasField("priority") else None,
        "description": header.description,
        "labels": dict(header.labels),
    }
    if header.HasField("within"):
        document["within"] = _span(header.within, "within")
    if header.HasField("starts_at"):
        starts_at = instant_of(header.starts_at, "starts_at")
        document["starts_at"] = starts_at.isoformat()
    return _without_empty(document) | {"count": header.count}


def _failures(failures: carts_pb2.CartFailures) -> dict[str, Any]:
    document = {
        "allow": _quantity(failures.allow),
        "of": failures.of,
        "then": failures.then,
        "strict": failures.strict if failures.HasField("strict") else None,
    }
    return _without_empty(document)


def _between(between: carts_pb2.CartBetween) -> dict[str, Any]:
    document = {"check": between.check, "approve": between.approve}
    if between.HasField("wait"):
        document["wait"] = _span(between.wait, "between.wait")
    return _without_empty(document)


def _span(message: Duration, where: str) -> str:
    try:
        span: timedelta = message.ToTimedelta()
    except (ValueError, OverflowError) as error:
        raise malformed(f"{where}: {error}") from error
    if span < timedelta(0):
        raise malformed(f"{where}: must not be negative")
    return format_duration(span)


def _quantity(text: str) -> int | str | None:
    """Parse a number of items, or keep a share as written; None: not given."""
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        return int(text)
    return text or None


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop empty fields: a message has no other way to leave one out."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def selection_of(request: carts_pb2.RetryCartRequest) -> Selection:
    """Return which items to retry."""
    word = _SELECTED.get(request.select)
    if word is None:
        raise malformed("select: FAILED, FAILED_AND_SKIPPED or ALL is needed")
    return Selection(
        states=SELECTED[word],
        from_wave=request.from_wave or None,
        keys=keys_of(request.keys) or None,
        cause=cause_of(request.cause),
    )


def change_of(request: carts_pb2.EditCartRequest) -> CartChange:
    """Return the changes that a request asks for."""
    return CartChange(
        max_parallel=request.max_parallel or None,
        failures=_failures(request.failures),
        between=_between(request.between),
        items=[_item_change(item) for item in request.items],
    )


def _item_change(item: carts_pb2.ItemChange) -> ItemChange:
    [key] = keys_of([item.key])
    return ItemChange(
        key=key,
        order=item.order if item.HasField("order") else None,
        inputs=parse_inputs(item.inputs_json) if item.inputs_json else None,
        skip=item.skip,
    )


def allowance_of(text: str) -> int | str | None:
    """Parse how many items may fail, as in the job file; None: not given."""
    return _quantity(text)


def keys_of(keys: Iterable[str]) -> list[str]:
    return [reference(key, "key") for key in keys]


def cause_of(cause: str) -> str | None:
    """Return the cause to filter by; None: any."""
    if len(cause) > _MAX_CAUSE or "\0" in cause:
        raise malformed("cause: that of a failure group is needed")
    return cause or None


def states_of(states: Iterable[carts_pb2.ItemState]) -> list[str]:
    """Return the names of the states."""
    known = {carts_pb2.ItemState.Value(f"ITEM_STATE_{state}"): state for state in ItemState}
    try:
        return [known[state] for state in states]
    except KeyError as error:
        raise malformed("states: there is no such state of an item") from error
