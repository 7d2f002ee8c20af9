"""What if: what is asked, and what a simulation found. Lengths of time are seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rota.domain.simulation.report import Report, report_document
from rota.operations.simulations import Comparison
from rota.server.gateway.shapes.models import Answer, Body, Duration
from rota.server.gateway.wiring import NAME

_Name = Annotated[str, Field(pattern=NAME)]
_MOST = 100  # changes of a kind


class SimulationBody(Body):
    """A change to think about."""

    length: Annotated[Duration, Field(alias="for", max_length=100)] = "24h"
    add_workers: Annotated[
        dict[_Name, Annotated[int, Field(ge=1, le=10_000)]],
        Field(default_factory=dict, max_length=_MOST, description="how many more, by pool"),
    ]
    move: Annotated[
        dict[_Name, Annotated[str, Field(max_length=1_000)]],
        Field(default_factory=dict, max_length=_MOST, description="another schedule, by job"),
    ]
    without: Annotated[
        list[_Name],
        Field(default_factory=list, max_length=_MOST, description="jobs that would not come"),
    ]


class WaitsShape(Answer):
    """How long runs waited to start."""

    runs: int
    p50: float
    p90: float
    p99: float
    longest: float


class SimulatedJobShape(Answer):
    name: str
    waits: WaitsShape
    start_within: float | None  # the objective; null: there is none
    late: int  # runs that missed it


class SimulatedPriorityShape(WaitsShape):
    priority: int


class SimulatedShareShape(Answer):
    name: str
    waits: WaitsShape
    got: float  # of all resources × time that were used
    entitled: float  # by weight, if everybody always had work


class SimulatedUseShape(Answer):
    """How much of a pool's resource was in use, as fractions."""

    pool: str
    resource: str
    mean: float
    peak: float


class SimulatedSaturationShape(Answer):
    """A stretch in which runs waited for the same thing."""

    what: str
    begins_at: float
    ends_at: float
    most_waiting: int


class ReportShape(Answer):
    seconds: float
    workers: int
    started: int
    ended: int
    still_waiting: int
    waits: WaitsShape
    jobs: list[SimulatedJobShape]
    priorities: list[SimulatedPriorityShape]
    shares: list[SimulatedShareShape]
    uses: list[SimulatedUseShape]
    saturations: list[SimulatedSaturationShape]

    @classmethod
    def of(cls, report: Report) -> ReportShape:
        return cls.model_validate(report_document(report))


class ComparisonShape(Answer):
    before: ReportShape
    after: ReportShape

    @classmethod
    def of(cls, found: Comparison) -> ComparisonShape:
        return cls(before=ReportShape.of(found.before), after=ReportShape.of(found.after))
