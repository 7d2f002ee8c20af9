"""Answers as messages of `contracts/rota/v1`: fields of the same names have the same content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from rota.api import runs as api
from rota.api.answers import Answer
from rota.contracts import carts_pb2, client_pb2
from rota.domain.errors import Invalid, RotaError
from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import NOTICED_SECONDS, Forecast, shortage_of
from rota.domain.job import Job
from rota.domain.jobfile import to_yaml
from rota.domain.quantities import parse_duration
from rota.operations.carts import CartPlan, CartView
from rota.operations.forecasts import UpcomingJob
from rota.operations.timetables import words_if_readable
from rota.ports.carts import Cart, Item
from rota.ports.records import Event
from rota.server.gateway.carts import cart_answer, cart_plan_answer, detail_answer, item_answer
from rota.server.gateway.jobs import job_answer
from rota.server.gateway.problems import MAX_DETAIL

M = TypeVar("M")
_MAX_FAULTS = 20  # trailing metadata has room for a few kilobytes
_MAX_FAULT = 200


def message(kind: type[M], answer: Answer, /, **others: Any) -> M:
    """Make a message of an answer's fields that have its names, and of `others`.

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
    """The number of `RUN_STATE_QUEUED` for `QUEUED`: the first value has the prefix of all."""
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
    return message(client_pb2.Job, answer, yaml=document, schedule=words_if_readable(job))


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
