from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.job import rules_of
from rota.domain.jobfile import read_job
from rota.domain.probes import Answer, answer_of, probe_ended, probe_spec, resolution_of
from rota.domain.retry import Ending, Verdict
from rota.domain.run import AttemptResult
from rota.domain.shape import demand_of, probe_shape
from rota.domain.spec import Backoff, Delivery, Isolation, JobType, Retry
from rota.domain.states import RunState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
POLICY = Retry(2, Backoff.EXPONENTIAL, timedelta(seconds=5))
ENDED = Ending(RunState.PROCESSING, AttemptResult.FAILED, NOW)


def decide(ending: Ending) -> Verdict:
    return probe_ended(ending, POLICY, 3, 0.0)


@pytest.mark.parametrize(
    ("result", "code", "answer"),
    [
        (AttemptResult.COMPLETED, 0, Answer.COMPLETED),
        (AttemptResult.FAILED, 1, Answer.FAILED),
        (AttemptResult.FAILED, 2, Answer.RETRY),
    ],
)
def test_an_answer_ends_the_probe_well(result: AttemptResult, code: int, answer: Answer) -> None:
    verdict = decide(replace(ENDED, result=result, exit_code=code))

    assert verdict.state is RunState.COMPLETED
    assert answer_of(verdict.state, verdict.cause) is answer


@given(
    result=st.sampled_from(AttemptResult),
    code=st.none() | st.integers(0, 255),
    failures=st.integers(0, 3),
)
def test_nothing_but_its_exit_code_is_an_answer(
    result: AttemptResult, code: int | None, failures: int
) -> None:
    verdict = decide(replace(ENDED, result=result, exit_code=code, failures=failures))

    is_told = result is AttemptResult.COMPLETED or (
        result is AttemptResult.FAILED and code in (1, 2)
    )
    assert (answer_of(verdict.state, verdict.cause) is not None) == is_told
    assert verdict.state is not RunState.UNKNOWN


def test_no_answer_is_asked_for_again_until_it_gives_up() -> None:
    first, last = (decide(replace(ENDED, exit_code=3, failures=n)) for n in range(2))

    assert (first.state, first.eligible_at) == (RunState.SCHEDULED, NOW + timedelta(seconds=5))
    assert (last.state, last.cause) == (RunState.FAILED, "exit 3")


@pytest.mark.parametrize(
    ("answer", "losses", "is_cancel_requested", "state", "cause"),
    [
        (Answer.COMPLETED, 9, True, RunState.COMPLETED, "probe"),
        (Answer.FAILED, 0, False, RunState.FAILED, "probe"),
        (Answer.RETRY, 3, False, RunState.SCHEDULED, ""),
        (Answer.RETRY, 4, False, RunState.FAILED, "poison"),
        (Answer.RETRY, 0, True, RunState.FAILED, "cancelled"),
    ],
)
def test_what_an_answer_leads_to(
    answer: Answer, losses: int, is_cancel_requested: bool, state: RunState, cause: str
) -> None:
    resolution = resolution_of(
        answer, losses=losses, max_losses=3, is_cancel_requested=is_cancel_requested
    )

    assert (resolution.state, resolution.cause) == (state, cause)


def job(**fields: object) -> dict[str, object]:
    given = {
        "name": "pay",
        "steps": [{"run": "./pay.sh", "isolation": "process"}],
        "delivery": "at_most_once",
        "probe": {"run": "./paid.sh"},
        **fields,
    }
    return {name: value for name, value in given.items() if value is not None}


def test_a_probe_is_one_step_that_may_be_repeated_behind_the_walls_of_the_job() -> None:
    spec = probe_spec(read_job(job(isolation="sandbox", env={"TO": "ada"}, timeout="1h")))

    assert [(step.name, step.run, step.isolation) for step in spec.steps] == [
        ("probe", "./paid.sh", None)
    ]
    assert (spec.delivery, spec.isolation) == (Delivery.AT_LEAST_ONCE, Isolation.SANDBOX)
    assert (spec.timeout, spec.env) == (timedelta(minutes=1), {"TO": "ada"})


def test_a_function_is_probed_by_a_command() -> None:
    spec = read_job(job(type="python", function="pay", steps=None, resources={"cpu": 4}))

    assert (probe_spec(spec).type, probe_spec(spec).function) == (JobType.SHELL, "")
    demand = demand_of(probe_shape(rules_of(spec)))
    assert (demand.function, dict(demand.resources)) == ("", {"slots": 1000})


def test_only_workers_that_know_probes_fit() -> None:
    rules = rules_of(read_job(job(needs={"zone": "north"})))

    demand = demand_of(probe_shape(rules))
    assert (dict(demand.labels), demand.offers) == ({"zone": "north"}, ("capability/probes",))


def test_the_walls_of_the_probe_are_demanded_of_every_worker_of_the_job() -> None:
    spec = read_job(job(isolation="sandbox", network="none"))

    # Its step is a plain process: only the probe is behind the wall.
    assert "wall/sandbox" in demand_of(probe_shape(rules_of(spec))).offers
