"""Reader of job files and stored documents into specs, with every problem reported at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rota.domain.calendars import Calendar
from rota.domain.errors import Problem
from rota.domain.jobfile.build import Document, build_job
from rota.domain.jobfile.calendars import build_calendar, check_calendars
from rota.domain.jobfile.cart_fields import check_carts
from rota.domain.jobfile.carts import (
    CartEntry,
    ItemDocuments,
    cart_entry,
    check_inputs_of_items,
    fill_carts,
)
from rota.domain.jobfile.declarations import Shared, build_declarations, check_declarations
from rota.domain.jobfile.external import NO_TIMEOUT, SET_TIMEOUT, lacks_timeout
from rota.domain.jobfile.fields import FILE, JOB
from rota.domain.jobfile.files import expanded
from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.rules import check_job
from rota.domain.jobfile.sections import MapOf, Section
from rota.domain.jobfile.text import At, Position, Report, parse_text
from rota.domain.jobfile.types import places_of
from rota.domain.jobfile.uses import (
    Known,
    Use,
    UsedResource,
    Written,
    cycle_problem,
    problems_of,
    uses_of,
    written_at,
)
from rota.domain.jobfile.walls import (
    OF_CONTAINERS,
    inheritable,
    misfits,
    settled,
    with_walls,
)
from rota.domain.spec import DEFAULT_PROJECT, Isolation, JobSpec, without_reserved
from rota.domain.walls import LIMITS, WallDefaults

NAMELESS_SET = "api"  # of new jobs that come without a file's name
_NO_WALLS = WallDefaults()
# A source is one place: that of the job takes the place of that of the defaults.
_MERGED = frozenset(
    row.name for row in JOB.fields if isinstance(row.kind, MapOf | Section) and row.name != "source"
)
# Fields that the policy of a project or its workers may bound: where they stand is told with what
# is wrong.
_BOUNDED = (
    ("max_concurrency",),
    ("priority",),
    ("pool",),
    ("timeout",),
    ("retry",),
    ("retry", "attempts"),
    ("log_limit",),
    ("isolation",),
    ("network",),
    ("run_as",),
    ("limits",),
    *(("limits", name) for name in LIMITS),
    *((name,) for name in OF_CONTAINERS),
    ("type",),
    ("lease",),
)


@dataclass(frozen=True, slots=True)
class CalendarsAt:
    """Position of the `calendars` of a job; they may come from the file's defaults."""

    line: int
    names: tuple[Position, ...]  # of each name


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One job of a file."""

    name: str
    document: Mapping[str, Any]  # in the file's vocabulary, defaults merged in; JSON-able
    spec: JobSpec
    line: int
    calendars_at: CalendarsAt
    uses: tuple[Use, ...] = ()  # what it names that is defined elsewhere
    share: Written | None = None  # None: its runs are the turn of who asks for them
    pool: Written | None = None  # where it is written, else the job itself; None: in no file
    needs: Written | None = None  # where labels of workers are asked for; None: nowhere
    at: Written | None = None  # the job itself; None: in no file
    emptied: frozenset[str] = frozenset()  # fields left empty: they take no default
    # Of `_BOUNDED`, and of all in `parameters`.
    places: Mapping[tuple[str, ...], Written] = field(default_factory=dict)

    @property
    def calendars(self) -> tuple[str, ...]:
        """Names of calendars that it uses, with or without a schedule."""
        return tuple(self.document.get("calendars", ()))

    def problem_at(self, path: tuple[str, ...], message: str, hint: str = "") -> Problem:
        """Return a problem where a field is written, else where the job begins."""
        places = [self.places.get(path[:length]) for length in range(len(path), 0, -1)]
        used = (use for use in self.uses if isinstance(use, UsedResource) and use.name == path[-1])
        first = next(used, None) if path[0] == "resources" else None
        where = first or next(filter(None, places), None) or self.at
        if where is None:
            return Problem(message, ".".join(path), self.line, hint=hint)
        return where.problem(message, hint)


@dataclass(frozen=True, slots=True)
class JobFile:
    set_name: str  # the scope of `apply --prune`; of what is new, if nobody named one
    project: str
    jobs: tuple[JobEntry, ...]
    warnings: tuple[Problem, ...]
    calendars: tuple[Calendar, ...] = ()  # of the file's project
    carts: tuple[CartEntry, ...] = ()  # of the file's project
    declarations: tuple[Shared, ...] = ()  # limits and resources, of the file's project
    names_set: bool = True  # False: neither the text nor who sent it does

    @property
    def projects(self) -> frozenset[str]:
        """Projects that it says something about; not its own if all that it has names another."""
        named = frozenset(entry.spec.project for entry in self.jobs)
        own = self.calendars or self.carts or self.declarations or not self.jobs
        return named | {self.project} if own else named

    def set_of(self, present: str | None) -> str:
        """Return the set that a job or cart belongs to once the file is applied.

        `present` is the one it is in; None: it is new. A text without a name, as from a pipe,
        takes nothing away from the set of another file.
        """
        return self.set_name if self.names_set or present is None else present


@dataclass(frozen=True, slots=True)
class _Found:
    """Job that is at least a mapping, with its valid fields."""

    document: dict[str, Any]  # defaults merged in
    written: Mapping[str, object]
    at: At

    @property
    def line(self) -> int:
        return self.at.position.line if self.at.position else 1


def read_file(
    text: str,
    *,
    name: str | None,
    project: str = DEFAULT_PROJECT,
    items: Mapping[str, ItemDocuments] | None = None,
) -> JobFile:
    """Read a job file; `Invalid` has every problem in it, in the order of its lines.

    `name` is the file's stem, the set's name unless the file has one; None: it has no stem.
    `project` is where jobs belong that name none. `items` are those that somebody has read from
    the files that carts name, by cart.
    """
    source = parse_text(text)
    report = Report(source.problems)
    root = At.root(report, source.mark)
    written = fill_carts(source.data, items or {}, root)
    file = _valid_fields(FILE, written, root)
    project = file.get("project", project)
    found = list(_find_jobs(file, written, root, project))
    for job in found:
        if not report.is_full:
            check_job(job.document, job.written, job.at)
    _refuse_repeated_names(found)
    check_calendars(file, written, root)
    check_carts(file, written, root)
    check_declarations(file, written, root)
    report.raise_errors("the job file")
    jobs = tuple(_entry(job, root.child("defaults")) for job in found)
    declarations = build_declarations(file, project)
    _check_uses(jobs, declarations, project, report)
    carts = tuple(_carts(file, jobs, project, root))
    report.raise_errors("the job file")
    return JobFile(
        set_name=file.get("set", name or NAMELESS_SET),
        project=project,
        jobs=jobs,
        warnings=report.warnings(),
        calendars=tuple(build_calendar(document) for document in file.get("calendars", ())),
        carts=carts,
        declarations=declarations,
        names_set="set" in file or name is not None,
    )


def read_job(document: Mapping[str, object]) -> JobSpec:
    """Read the spec of one job, given as the document that a `JobEntry` carries.

    Variables that only Rota sets are ignored, since earlier versions stored them.
    """
    report = Report()
    root = At.root(report)
    checked = _valid_fields(JOB, _without_reserved_env(document), root)
    if isinstance(document, Mapping):
        check_job(checked, document, root.within(JOB.scope(document, root)), is_whole=True)
    report.raise_errors("the job")
    return build_job(checked)


def _without_reserved_env(document: object) -> object:
    """Remove reserved variables of a job's or step's document; its shape is not checked yet."""
    if not isinstance(document, Mapping):
        return document
    changed: dict[str, object] = {}
    if isinstance(env := document.get("env"), Mapping):
        changed["env"] = without_reserved(env)
    if isinstance(steps := document.get("steps"), list | tuple):
        changed["steps"] = [_without_reserved_env(step) for step in steps]
    return {**document, **changed}


def _valid_fields(section: Section, value: object, at: At) -> dict[str, Any]:
    checked = section.check(value, at)
    return checked if isinstance(checked, dict) else {}


def _find_jobs(file: Document, written: Any, root: At, project: str) -> Iterator[_Found]:
    """Yield the jobs of a file whose fields have been checked, with its defaults merged in."""
    defaults = file.get("defaults", {})
    for index, job in enumerate(file.get("jobs", ())):
        if job is not INVALID:
            raw = written["jobs"][index]
            at = root.child("jobs").child(index)
            document = _merge(defaults, job, raw) | {"project": job.get("project", project)}
            yield _Found(_in_table_order(document), raw, at.within(JOB.scope(raw, at)))


def _merge(defaults: Document, job: Document, written: Mapping[str, object]) -> dict[str, Any]:
    """Merge the job over the defaults; mappings key by key. A field left empty takes no default."""
    is_plain = "isolation" in written and written["isolation"] is None
    own = {**job, "isolation": Isolation.PROCESS} if is_plain else job
    inherited = {
        name: value
        for name, value in inheritable(defaults, own).items()
        if name not in written or written[name] is not None
    }
    merged = inherited | dict(job)
    for name in _MERGED & inherited.keys() & job.keys():
        merged[name] = inherited[name] | job[name]
    return expanded(merged)


def with_defaults(
    file: JobFile, defaults: Mapping[str, Document], walls: WallDefaults = _NO_WALLS
) -> JobFile:
    """Return the file with what its jobs leave to their projects, whose defaults these are.

    They stand below the defaults of the file; below all is the wall that the store gives.
    `Invalid` if a job cannot have them.
    """
    report = Report()
    jobs = tuple(
        _inheriting(job, defaults.get(job.spec.project, {}), walls, report) for job in file.jobs
    )
    report.raise_errors("the job file")
    return replace(file, jobs=jobs)


def _inheriting(
    entry: JobEntry, defaults: Document, walls: WallDefaults, report: Report
) -> JobEntry:
    if not defaults:
        return _walled(entry, walls, report)
    merged = _merge(defaults, entry.document, dict.fromkeys(entry.emptied))
    document = _in_table_order(settled(merged, walls, entry.emptied))
    if document == entry.document:
        return _walled(entry, walls, report)
    # No line of the file has what is inherited: the job is where it is told.
    position = entry.at.position if entry.at else Position(entry.line, 1)
    at = At(report, (entry.at.path if entry.at else "jobs",), f"job {entry.name}", None, position)
    check_job(document, document, at, is_whole=True)
    spec = build_job(document)
    own = {(type(use), use.name): use for use in entry.uses}
    uses = (own.get((type(use), use.name), use) for use in uses_of(spec, document, at))
    share, needs, pool = entry.share, entry.needs, entry.pool
    return replace(
        entry,
        document=document,
        spec=spec,
        uses=tuple(uses),
        share=share or (written_at(spec.share, at) if spec.share else None),
        needs=needs or (written_at("needs", at) if spec.needs else None),
        pool=replace(pool, name=spec.pool) if pool else None,
        calendars_at=_inherited_calendars(entry, document, position),
    )


def _walled(entry: JobEntry, walls: WallDefaults, report: Report) -> JobEntry:
    """Return a job with nothing but the walls of the store below it."""
    document = settled(entry.document, walls, entry.emptied)
    for misfit in misfits(document, f"job {entry.name}", is_whole=True):
        path = tuple(map(str, misfit.path))
        report.add(entry.problem_at(path, misfit.message, misfit.hint))
    if lacks_timeout(document):
        report.add(entry.problem_at(("timeout",), f"job {entry.name} {NO_TIMEOUT}", SET_TIMEOUT))
    if document is entry.document:
        return entry
    document = _in_table_order(document)
    # All but this was read with the file.
    return replace(entry, document=document, spec=with_walls(entry.spec, document))


def _inherited_calendars(entry: JobEntry, document: Document, position: Position) -> CalendarsAt:
    if "calendars" in entry.document:
        return entry.calendars_at
    return CalendarsAt(position.line, (position,) * len(document.get("calendars", ())))


def _in_table_order(document: Document) -> dict[str, Any]:
    return {row.name: document[row.name] for row in JOB.fields if row.name in document}


def _refuse_repeated_names(found: list[_Found]) -> None:
    first: dict[tuple[str, str], _Found] = {}
    for job in found:
        if name := job.document.get("name"):
            earlier = first.setdefault((job.document["project"], name), job)
            if earlier is not job:
                job.at.child("name").refuse(f"job {name} is already in line {earlier.line}")


def _entry(job: _Found, defaults: At) -> JobEntry:
    document = job.document
    spec = build_job(document)
    return JobEntry(
        document["name"],
        document,
        spec,
        job.line,
        _calendars_at(job, defaults),
        uses_of(spec, document, job.at),
        _share_at(job, defaults),
        written_at(spec.pool, _field_at("pool", job, defaults) if "pool" in document else job.at),
        written_at("needs", _field_at("needs", job, defaults)) if spec.needs else None,
        written_at(document["name"], job.at),
        frozenset(name for name, value in job.written.items() if value is None),
        {path: written_at(path[-1], at) for path, at in _bounded(job, defaults)},
    )


def _bounded(job: _Found, defaults: At) -> Iterator[tuple[tuple[str, ...], At]]:
    for first, *rest in _BOUNDED:
        at = _field_at(first, job, defaults)
        for name in rest:
            at = at.child(name)
        if at.mark is not None:
            yield (first, *rest), at
    if "parameters" in job.document:
        yield from places_of(job.document["parameters"], job.at.child("parameters"))


def _check_uses(
    jobs: tuple[JobEntry, ...], declarations: tuple[Shared, ...], project: str, report: Report
) -> None:
    """Report problems that can be found without a server, which may know of more than the file."""
    ours = {job.name: job.uses for job in jobs if job.spec.project == project}
    known = Known.of(declarations, is_all=False)
    problems = [problem for uses in ours.values() for problem in problems_of(uses, known)]
    if cycle := cycle_problem(ours, {}):
        problems.append(cycle)
    for problem in problems:
        report.add(problem)


def _carts(
    file: Document, jobs: tuple[JobEntry, ...], project: str, root: At
) -> Iterator[CartEntry]:
    """Yield the carts, their items compared with jobs that are known to be valid by now."""
    specs = {job.name: job.spec for job in jobs if job.spec.project == project}
    for index, document in enumerate(file.get("carts", ())):
        at = root.child("carts").child(index)
        entry = cart_entry(document, at)
        check_inputs_of_items(entry.template, specs, at)
        yield entry


def _share_at(job: _Found, defaults: At) -> Written | None:
    share = job.document.get("share")
    return written_at(share, _field_at("share", job, defaults)) if share else None


def _field_at(name: str, job: _Found, defaults: At) -> At:
    return (job.at if name in job.written else defaults).child(name)


def _calendars_at(job: _Found, defaults: At) -> CalendarsAt:
    at = _field_at("calendars", job, defaults)
    names = (at.child(index) for index in range(len(job.document.get("calendars", ()))))
    return CalendarsAt(
        at.mark.key.line if at.mark else job.line,
        tuple(name.position or Position(job.line, 1) for name in names),
    )
