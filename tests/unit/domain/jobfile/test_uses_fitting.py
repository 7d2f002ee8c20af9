"""Whether workers could run what a job file asks for."""

from __future__ import annotations

import pytest

from rota.domain.jobfile.uses import Known, Use, refusals_of, too_large
from rota.domain.keys import Resource
from tests.unit.domain.jobfile.jobfiles import by_message, file_of, job, read

KNOWN = Known(resources={"pg-license": Resource("default", "pg-license", 4)})


def uses_of(**resources: object) -> tuple[Use, ...]:
    [entry] = read(file_of(job(resources=resources))).jobs
    return entry.uses


def test_a_pool_refuses_what_is_larger_than_it_takes() -> None:
    uses = uses_of(cpu=8, memory="1GiB", gpu=1)

    told = [problem.message for problem in refusals_of(uses, "small", {"cpu": 4_000, "memory": 0})]

    assert told == [
        "pool small takes runs of at most 4 cpu, not 8",
        "pool small takes runs of at most 0B memory, not 1GiB",
    ]
    assert list(refusals_of(uses, "large", {"cpu": 8_000})) == []


@pytest.mark.parametrize(
    ("offers", "message"),
    [
        (
            [{"cpu": 4_000, "memory": 8_000}],
            "no worker of pool linux has 8 cpu, the largest has 4: ",
        ),
        ([{}], "no worker of pool linux has any cpu: "),
        (
            [{"cpu": 8_000, "memory": 0}, {"cpu": 0, "memory": 8_000}],
            "no worker of pool linux has all of this at once",
        ),
    ],
    ids=by_message,
)
def test_a_job_that_no_worker_could_run_is_warned_about(
    offers: list[dict[str, int]], message: str
) -> None:
    uses = uses_of(**{"cpu": 8, "memory": "8B", "pg-license": 1})

    problem = too_large(uses, KNOWN, "linux", offers)

    assert problem is not None
    assert problem.warning
    assert message in problem.message


def test_nothing_is_said_of_workers_while_none_are_known() -> None:
    uses = uses_of(**{"cpu": 8, "pg-license": 1})

    assert too_large(uses, KNOWN, "linux", []) is None
    assert too_large(uses, KNOWN, "linux", [{}, {"cpu": 8_000}]) is None
