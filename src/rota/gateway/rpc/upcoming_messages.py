"""Jobs that are due soon, as messages."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from rota.contracts import client_pb2 as pb
from rota.domain.forecast.ahead import RunAhead
from rota.domain.forecast.forecast import Forecast
from rota.domain.forecast.saturation import NOTICED_SECONDS, shortage_of
from rota.gateway.rpc.messages import timestamp
from rota.operations.forecasting import UpcomingJob


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
