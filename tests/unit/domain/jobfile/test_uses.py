"""What jobs use that is defined elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.jobfile.uses import Known, Use, cycle_problem, problems_of
from rota.domain.keys import Each, Limit, Resource, Sharing
from tests.unit.domain.jobfile.jobfiles import by_message, errors_in, file_of, job, read

SECOND = timedelta(seconds=1)
KNOWN = Known(
    limits={
        "s3-put": Limit("default", "s3-put", 10, SECOND, burst=10),
        "per-user": Limit("default", "per-user", 10, SECOND, 10, Each.USER),
    },
    resources={
        "pg-license": Resource("default", "pg-license", 4),
        "lock": Resource("default", "lock", sharing=Sharing.MUTEX),
        "catalog": Resource("default", "catalog", sharing=Sharing.READ_WRITE),
    },
    offered={"fpga"},
    jobs={"vacuum"},
)


def uses_of(**fields: object) -> tuple[Use, ...]:
    [entry] = read(file_of(job(**fields))).jobs
    return entry.uses


def test_what_is_known_may_be_used() -> None:
    uses = uses_of(
        resources={"cpu": 64, "fpga": 0.5, "pg-license": 4, "lock": 1, "catalog": "write"},
        rate_limits=[{"name": "s3-put", "tokens": 10}, {"name": "per-user", "tokens": 2}],
        after=["vacuum"],
    )

    assert len(uses) == 8
    assert list(problems_of(uses, KNOWN)) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resources": {"pg-licence": 1}}, 'did you mean "pg-license"?'),
        ({"resources": {"tpu9": 1}}, "declare it: resources: [{name: tpu9, total: 1}]"),
        ({"resources": {"catalogue": "read"}}, 'did you mean "catalog"?'),
        ({"resources": {"pg-license": 5}}, "takes 5 of pg-license, of which there are 4"),
        ({"resources": {"lock": 2}}, "takes 2 of lock, of which there is 1"),
        ({"resources": {"pg-license": 0.5}}, "pg-license is taken in whole units, not 0.5"),
        ({"resources": {"pg-license": "read"}}, "pg-license is not of kind read_write"),
        ({"resources": {"catalog": 1}}, "write catalog: read, or catalog: write"),
        ({"rate_limits": ["s3-puts"]}, 'no limit "s3-puts" — did you mean "s3-put"?'),
        ({"rate_limits": ["mail"]}, "declare it: limits: [{name: mail, tokens: 10, per: 1s}]"),
        (
            {"rate_limits": [{"name": "s3-put", "tokens": 11}]},
            "takes 11 tokens of s3-put, which never has more than 10 — give the limit a burst",
        ),
        ({"after": ["vacum"]}, 'there is no job "vacum" — did you mean "vacuum"?'),
    ],
    ids=by_message,
)
def test_what_cannot_be_had_is_refused_with_its_place(
    fields: dict[str, object], message: str
) -> None:
    [problem] = problems_of(uses_of(**fields), KNOWN)

    assert message in str(problem)
    assert problem.line is not None
    assert problem.path.startswith(f"jobs[0].{next(iter(fields))}")


def test_without_a_server_only_the_files_own_declarations_are_judged() -> None:
    licence = {"name": "pg-license", "total": 4}
    elsewhere = {"resources": {"tpu": 1}, "rate_limits": ["s3-put"], "after": ["vacuum"]}

    assert read(file_of(job(**elsewhere), resources=[licence])).jobs
    [error] = errors_in(file_of(job(resources={"pg-license": 5}), resources=[licence]))
    assert "takes 5 of pg-license" in error


def test_rings_by_way_of_jobs_that_are_not_in_the_file_are_found() -> None:
    ours = {"tidy": uses_of(after=["vacuum"])}

    problem = cycle_problem(ours, {"vacuum": ["dump"], "dump": ["tidy"]})

    assert problem is not None
    assert problem.message.endswith("dump → tidy → vacuum → dump")
    assert problem.path == "jobs[0].after[0]"
