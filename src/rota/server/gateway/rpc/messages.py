"""Jobs, runs and events as messages of `contracts/rota/v1/client.proto`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from rota.contracts import client_pb2 as pb
from rota.domain.errors import Invalid, RotaError
from rota.domain.job import Job
from rota.domain.jobfile import to_yaml
from rota.domain.run import Run
from rota.operations.timetables import words_if_readable
from rota.operations.why import in_short
from rota.ports.records import Event
from rota.server.gateway.problems import MAX_DETAIL

_MAX_FAULTS = 20  # trailing metadata has room for a few kilobytes
_MAX_FAULT = 200


def timestamp(instant: datetime | None) -> Timestamp | None:
    if instant is None:
        return None
    message = Timestamp()
    message.FromDatetime(instant)
    return message


def job_message(job: Job) -> pb.Job:
    return pb.Job(
        id=job.id,
        project=job.project,
        name=job.name,
        version=job.version,
        etag=job.digest,
        yaml=to_yaml([dict(job.document)]),
        schedule=words_if_readable(job),
        next_at=timestamp(job.next_at),
        enabled=job.enabled,
        paused=job.paused,
        created_by=job.created_by,
        created_at=timestamp(job.created_at),
        updated_at=timestamp(job.updated_at),
        last_state=_state(job.last_state),
    )


def run_message(run: Run) -> pb.Run:
    return pb.Run(
        id=run.id,
        project=run.project,
        job_id=run.job_id,
        job=run.job,
        job_version=run.job_version,
        trigger=run.trigger,
        state=_state(run.state),
        message=in_short(run) or run.message,
        cause=run.cause,
        delivery=delivery_value(run.delivery),
        attempt=run.attempt,
        worker=run.worker,
        due_at=timestamp(run.due_at),
        created_at=timestamp(run.created_at),
        started_at=timestamp(run.started_at),
        ended_at=timestamp(run.ended_at),
        exit_code=run.exit_code,
        signal=run.signal,
        created_by=run.created_by,
        inputs_json=_json(run.inputs),
        outputs_json=_json(run.outputs),
        cart=run.cart or "",
        item=run.item or "",
    )


def event_message(event: Event) -> pb.Event:
    return pb.Event(
        position=event.seq,
        kind=event.kind,
        at=timestamp(event.at),
        actor=event.actor,
        project=event.project,
        ids=event.ids,
        data_json=json.dumps(dict(event.data)),
    )


def problem_message(error: RotaError) -> pb.Problem:
    faults = error.problems if isinstance(error, Invalid) else ()
    return pb.Problem(
        code=error.code,
        message=error.message[:MAX_DETAIL],
        hint=error.hint,
        faults=[
            pb.Fault(
                message=fault.message[:_MAX_FAULT],
                path=fault.path[:_MAX_FAULT],
                line=fault.line or 0,
                column=fault.column or 0,
                hint=fault.hint[:_MAX_FAULT],
            )
            for fault in faults[:_MAX_FAULTS]
        ],
    )


def delivery_value(delivery: str) -> pb.Delivery:
    value: pb.Delivery = pb.Delivery.Value(f"DELIVERY_{delivery.upper()}")
    return value


def _state(state: str | None) -> pb.RunState:
    value: pb.RunState = pb.RunState.Value(f"RUN_STATE_{state or 'UNSPECIFIED'}")
    return value


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value)
