"""What carts name beside the jobs of their items: it has to be there before anything is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.domain.carts.definition import CartRules
from rota.domain.errors import Invalid, Problem
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.jobfile.carts import Reference, Referred, unknown_references
from rota.domain.schedule.quoting import quoted
from rota.operations.backends import Backends
from rota.ports.records import JobQuery

_CHECK = "between.check"


def references_of(rules: CartRules, rollback: str = "") -> Iterator[Reference]:
    """The job that checks, the job that undoes, and calendars."""
    if rules.between.check:
        yield Reference(Referred.JOB, rules.between.check, _CHECK)
    if rollback:
        yield Reference(Referred.JOB, rollback, "rollback")
    for name in rules.calendars:
        yield Reference(Referred.CALENDAR, name, "calendars")


async def require_known(backends: Backends, project: str, references: Sequence[Reference]) -> None:
    """`Invalid` with each that the project does not have, or that cannot be used so."""
    jobs = [each.name for each in references if each.kind is Referred.JOB]
    calendars = [each.name for each in references if each.kind is Referred.CALENDAR]
    store = backends.store
    found = await store.jobs(JobQuery(project=project, names=jobs)) if jobs else []
    stored = await store.calendars(project, calendars) if calendars else []
    known = {
        Referred.JOB: {job.name for job in found},
        Referred.CALENDAR: {each.calendar.name for each in stored},
    }
    if problems := unknown_references(references, known):
        raise Invalid("the cart names what is not there", problems)
    checks = {each.name for each in references if each.path == _CHECK}
    if problems := [it for job in found if job.name in checks for it in _ungiven(job)]:
        raise Invalid("the check between waves cannot be run", problems)


def _ungiven(check: Job) -> Iterator[Problem]:
    """A check is run without inputs: it has nothing to do with any single item."""
    for name, declared in read_job(check.document).inputs.items():
        if declared.default is None:
            message = f"job {check.name} needs the input {quoted(name)}, and a check is given none"
            yield Problem(message, _CHECK, hint="give that input a default")
