"""Builder of a `JobSpec` from a checked document; missing fields keep the spec's default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.domain.jobfile.demands import build_after, build_rate_limits, build_resources
from rota.domain.jobfile.external import build_external, of_no_worker
from rota.domain.jobfile.files import build_artifacts, build_source
from rota.domain.jobfile.http import build_http
from rota.domain.jobfile.kinds import parse_share
from rota.domain.jobfile.walls import build_step_walls, build_walls
from rota.domain.quantities import parse_duration, parse_size
from rota.domain.schedule import is_one_off
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import (
    Backoff,
    Delivery,
    Dst,
    Fold,
    Gap,
    Input,
    InputType,
    IntervalFrom,
    JobSpec,
    Late,
    Misfire,
    MisfirePolicy,
    OutputKept,
    Overlap,
    Probe,
    Retry,
    Schedule,
    Step,
    StepCondition,
)

Document = Mapping[str, Any]

_USUAL = Retry()


def build_job(document: Document) -> JobSpec:
    return JobSpec(
        name=document["name"],
        schedule=build_schedule(document) if "schedule" in document else None,
        steps=tuple(
            _step(step, number, document)
            for number, step in enumerate(document.get("steps", ()), 1)
        ),
        inputs={name: _input(given) for name, given in document.get("inputs", {}).items()},
        **_given(
            document,
            project=str,
            type=str,
            title=str,
            description=str,
            owner=str,
            runbook=str,
            labels=dict,
            enabled=bool,
            max_concurrency=int,
            function=str,
            http=build_http,
            external=build_external,
            parameters=dict,
            env=dict,
            priority=int,
            share=str,
            pool=str,
            needs=dict,
            expect=parse_duration,
            resources=build_resources,
            rate_limits=build_rate_limits,
            exclusive_by=tuple,
            after=build_after,
            delivery=Delivery,
            timeout=parse_duration,
            deadline=parse_duration,
            grace=parse_duration,
            retry=_retry,
            max_losses=int,
            probe=_probe,
            stalled_after=parse_duration,
            log_limit=parse_size,
            output=OutputKept,
        )
        | build_source(document)
        | build_walls(document)
        | of_no_worker(document),
    )


def build_schedule(document: Document) -> Schedule:
    """Build the job's schedule; the document must have one."""
    timezone = document.get("timezone", "UTC")
    schedule = Schedule(
        expressions=tuple(_as_list(document["schedule"])),
        **_given(
            document,
            timezone=str,
            dst=_dst,
            run_once=bool,
            starts=lambda text: _instant(text, timezone),
            ends=lambda text: _instant(text, timezone),
            jitter=parse_duration,
            spread=parse_duration,
            interval_from=IntervalFrom,
            misfire=_misfire,
            overlap=Overlap,
            start_within=parse_duration,
            late=Late,
            calendars=tuple,
        ),
    )
    has_window = "within" in document.get("misfire", {})
    if is_one_off(schedule) and not has_window:
        # A time that comes only once is run however late.
        return replace(schedule, misfire=replace(schedule.misfire, within=None))
    return schedule


def _given(document: Document, **readers: Callable[[Any], object]) -> dict[str, Any]:
    """Return the fields that the document has, each through its reader."""
    return {name: read(document[name]) for name, read in readers.items() if name in document}


def _as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _instant(text: str, timezone: str) -> datetime:
    written = datetime.fromisoformat(text)
    if written.tzinfo is None:
        return load_zone(timezone).instant(written)
    return written.astimezone(UTC)


def _dst(document: Document) -> Dst:
    return Dst(**_given(document, gap=Gap, fold=Fold))


def _misfire(document: Document) -> Misfire:
    given = _given(document, policy=MisfirePolicy, within=parse_duration, max=int)
    return Misfire(**given, one_off_within=given.get("within"))


def _retry(document: Document) -> Retry:
    given = _given(
        document,
        attempts=int,
        backoff=Backoff,
        delay=parse_duration,
        max_delay=parse_duration,
        jitter=parse_share,
        when=frozenset,
        exit_codes=frozenset,
    )
    # The default for the longest pause must not shorten a longer one that was asked for.
    given.setdefault("max_delay", max(_USUAL.max_delay, given.get("delay", _USUAL.delay)))
    return Retry(**given)


def _probe(document: Document) -> Probe:
    run = document["run"]
    given = _given(
        document,
        shell=str,
        timeout=parse_duration,
        attempts=int,
        delay=parse_duration,
        max_delay=parse_duration,
    )
    given.setdefault("max_delay", max(_USUAL.max_delay, given.get("delay", timedelta(0))))
    return Probe(run if isinstance(run, str) else tuple(run), **given)


def _step(document: Document, number: int, job: Document) -> Step:
    run = document["run"]
    return Step(
        run=run if isinstance(run, str) else tuple(run),
        condition=StepCondition(document.get("if", StepCondition.SUCCESS)),
        **{"name": f"step {number}"}
        | _given(
            document,
            name=str,
            title=str,
            folder=str,
            shell=str,
            interpreter=tuple,
            env=dict,
            timeout=parse_duration,
            retry=_retry,
            continue_on_error=bool,
            artifacts=build_artifacts,
        )
        | build_step_walls(document, job),
    )


def _input(document: Document) -> Input:
    return Input(
        **_given(
            document,
            type=InputType,
            default=lambda value: value,
            help=str,
            options=tuple,
            pattern=str,
        )
    )
