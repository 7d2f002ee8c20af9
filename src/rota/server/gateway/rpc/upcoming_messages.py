"""Jobs that are due soon, as messages."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from rota.contracts import client_pb2 as pb
from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import NOTICED_SECONDS, Forecast, shortage_of
from rota.operations.forecasts import UpcomingJob
from rota.server.gateway.rpc.messages import timestamp


def upcoming_job(forecast: Forecast, job: UpcomingJob) -> pb.UpcomingJob:
    expected = Duration()
    expected.FromTimedelta(job.expected)
    return pb.UpcomingJob(
        id=job.id,
        name=job.name,
        due_at=[timestamp(forecast.instant(run.due_at)) for run in job.runs],
        starts=[_predicted(forecast, run) for run in job.runs],
        expected=expected,
    )


def _predicted(forecast: Forecast, run: RunAhead) -> pb.PredictedStart:
    start_at = forecast.start_of(run)
    return pb.PredictedStart(
        start_at=timestamp(start_at) if start_at else None,
        waits_for=shortage_of(run) if run.wait > NOTICED_SECONDS else "",
    )
