"""Rules that a job's fields must satisfy together, beyond each being right by itself.

A rule sees only fields that passed their own check, so that one fault is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

from rota.domain.errors import Invalid, Problem, did_you_mean, listed, quoted, shown
from rota.domain.following import Origin, Source, as_input, parse_source
from rota.domain.jobfile.build import Document, build_schedule
from rota.domain.jobfile.demands import job_of
from rota.domain.jobfile.external import check_external
from rota.domain.jobfile.files import FileValue, check_source, is_file
from rota.domain.jobfile.formats import SHORT, check_code, check_short_form
from rota.domain.jobfile.http import check_http
from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.sections import MAX_ENV_BYTES, InputValue
from rota.domain.jobfile.text import At, Report, UnusableNumber, refuse_repeated, resolve
from rota.domain.jobfile.types import check_plugin_type
from rota.domain.jobfile.walls import check_walls, stated_wall
from rota.domain.patterns import MAX_TEXT, PatternRefused, compiled
from rota.domain.quantities import parse_duration
from rota.domain.resources import HTTP_SLOTS, SLOTS
from rota.domain.schedule import compile_schedule, warnings
from rota.domain.schedule.zones import load_zone
from rota.domain.spec import (
    Delivery,
    Input,
    InputType,
    Isolation,
    JobSpec,
    JobType,
    Late,
    When,
    is_plugin_type,
)

JsonScalar = str | int | float | bool
GivenInput = JsonScalar | dict[str, Any]  # a file is a mapping, see `FileValue`
_MOST_OPTIONS_TOLD = 10
_TEXTS = (InputType.STRING, InputType.CHOICE)

TYPE_WORDS = {
    InputType.STRING: "text",
    InputType.INTEGER: "a whole number",
    InputType.NUMBER: "a number",
    InputType.BOOLEAN: "true or false",
    InputType.FILE: "a file",
    InputType.CHOICE: "one of its options",
}


def parse_inputs(spec: JobSpec, given: Mapping[str, object]) -> dict[str, GivenInput]:
    """Parse a value for every input the job declares; `Invalid` with all that is wrong.

    Text is read as a number or boolean where the input is one: flags and forms have only text.
    """
    [values] = parse_input_sets(spec, [given])
    return values


def parse_input_sets(
    spec: JobSpec, sets: Iterable[Mapping[str, object]]
) -> list[dict[str, GivenInput]]:
    """Parse many sets of inputs; `Invalid` is about the first that has something wrong."""
    report = Report()
    at = At.root(report)
    values = []
    for given in sets:
        values.append(check_inputs(spec, given, at))
        report.raise_errors("the set of inputs")
    return values


def check_inputs(
    spec: JobSpec, given: Mapping[str, object], at: At, *, may_lack: bool = False
) -> dict[str, GivenInput]:
    """Parse inputs, and report what is wrong at the position of each.

    With `may_lack` it is fine to leave out what has to be given in the end.
    """
    for name in given.keys() - spec.inputs.keys():
        message = f"job {spec.name} has no input {quoted(name)}"
        at.child(name).refuse_key(message, did_you_mean(name, spec.inputs))
    values = {
        name: _value(declared, given.get(name), at.child(name))
        for name, declared in spec.inputs.items()
        if name in given or not may_lack
    }
    _refuse_oversize(values, at)
    return {name: value for name, value in values.items() if value is not None}


def check_input(declared: Input, name: str, given: object, at: At) -> None:
    """Report what is wrong with a value of an input, which stands elsewhere than under its name."""
    _value(declared, given, at, name)


def is_of_type(value: object, kind: InputType) -> TypeGuard[GivenInput]:
    match kind:
        case InputType.STRING | InputType.CHOICE:
            return isinstance(value, str)
        case InputType.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case InputType.NUMBER:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case InputType.BOOLEAN:
            return isinstance(value, bool)
        case InputType.FILE:
            return is_file(value)


def _value(declared: Input, given: object, at: At, name: str = "") -> GivenInput | None:
    """Parse the value; None after reporting why there is none."""
    what = f"input {quoted(name or at.name)}"
    if given is None:
        if declared.default is None:
            at.refuse(f"{what} must be given", declared.help)
        return declared.default
    if declared.type is InputType.FILE:
        file = FileValue().check(given, at)
        return file if isinstance(file, dict) else None
    if InputValue().check(given, at) is INVALID:
        return None
    value = _read(given, declared.type)
    if not is_of_type(value, declared.type) and declared.type is not InputType.CHOICE:
        words = TYPE_WORDS[declared.type]
        at.refuse(f"{what} must be {words}, not {shown(given)}")
        return None
    return value if _is_allowed(value, declared, what, at) else None


def _is_allowed(value: object, declared: Input, what: str, at: At) -> TypeGuard[JsonScalar]:
    """Return whether a value is among the options, and has the pattern; else report it."""
    if declared.type is InputType.CHOICE and value not in declared.options:
        hint = did_you_mean(value, declared.options) if isinstance(value, str) else ""
        at.refuse(f"{what} must be {_listed(declared.options)}, not {shown(value)}", hint)
        return False
    if declared.pattern and isinstance(value, str) and len(value) > MAX_TEXT:
        at.refuse(f"{what} is longer than the {MAX_TEXT:,} characters that its pattern allows")
        return False
    if declared.pattern and not compiled(declared.pattern).matches(str(value)):
        at.refuse(f"{what} must match {declared.pattern}, not {shown(value)}", declared.help)
        return False
    return True


def _listed(options: Sequence[str]) -> str:
    more = len(options) - _MOST_OPTIONS_TOLD
    names = [quoted(option) for option in options[:_MOST_OPTIONS_TOLD]]
    return f"one of {', '.join(names)} and {more} more" if more > 0 else listed(names)


def parse_handed(
    inputs: Mapping[str, Input], values: Mapping[str, object]
) -> dict[str, GivenInput]:
    """Parse values that a run hands on to inputs of another; `Invalid` with all that is wrong."""
    report = Report()
    at = At.root(report)
    parsed = {
        name: _value(inputs[name], as_input(value, inputs[name].type), at.child(name))
        for name, value in values.items()
    }
    _refuse_oversize(parsed, at)
    report.raise_errors("what is handed on")
    return {name: value for name, value in parsed.items() if value is not None}


def _read(given: object, kind: InputType) -> object:
    if kind in (InputType.STRING, InputType.CHOICE) or not isinstance(given, str):
        return given
    try:
        return resolve(given.strip())
    except UnusableNumber:
        return given


def _refuse_oversize(values: Mapping[str, GivenInput | None], at: At) -> None:
    size = sum(len(str(value).encode()) for value in values.values())
    if size > MAX_ENV_BYTES:
        at.refuse(f"the inputs have more than {MAX_ENV_BYTES // 1024} KiB in total")


def check_demands(document: Document, written: Mapping[str, object], at: At) -> None:
    """Apply every rule. `written` is the job before its fields were checked and merged."""
    _check_resources(document.get("resources", {}), at.child("resources"))
    _check_rate_limits(document.get("rate_limits", ()), at.child("rate_limits"))
    if "inputs" in document or written.get("inputs") is None:
        _check_exclusive(document, at.child("exclusive_by"))
    if after := document.get("after"):
        _check_after(document, after, at.child("after"))


def jobs_of_after(at: At) -> At:
    """Return the position of the names under `after`, which may be the whole of it."""
    jobs = at.child("jobs")
    return jobs if jobs.mark else at


def name_of_followed(at: At) -> At:
    """Return the position of a name under `after`, which may be the whole entry."""
    name = at.child("job")
    return name if name.mark else at


def _check_resources(resources: Document, at: At) -> None:
    for name in (SLOTS, HTTP_SLOTS):
        if name in resources:
            at.child(name).refuse_key(f"{name} are not asked for: every run takes one")
    memory = resources.get("memory")
    if isinstance(memory, int | float) and memory:
        hint = f"write a size: {memory:g}GiB"
        at.child("memory").refuse(f"memory must be a size such as 4GiB, not {memory:g}", hint)


def _check_rate_limits(limits: Sequence[Any], at: At) -> None:
    first: dict[str, At] = {}
    for index, limit in enumerate(limits):
        if limit is not INVALID and (name := limit.get("name")):
            refuse_repeated(f"limit {name}", name, at.child(index), first)


def _check_exclusive(document: Document, at: At) -> None:
    first: dict[str, At] = {}
    inputs = document.get("inputs", {})
    for index, name in enumerate(document.get("exclusive_by", ())):
        if name is INVALID:
            continue
        refuse_repeated(f"input {name}", name, at.child(index), first)
        if name not in inputs:
            hint = did_you_mean(name, inputs) or "declare it under inputs"
            at.child(index).refuse(f"the job has no input {quoted(name)}", hint)


def _check_after(document: Document, after: Document, at: At) -> None:
    first: dict[str, At] = {}
    for index, entry in enumerate(after.get("jobs", ())):
        place = jobs_of_after(at).child(index)
        if entry is INVALID or (isinstance(entry, Mapping) and "job" not in entry):
            continue
        name = job_of(entry)
        refuse_repeated(f"job {name}", name, name_of_followed(place), first)
        if "schedule" in document:
            _refuse_more_than_name(entry, place)
        else:
            _check_handed(document, entry, place)
    if "within" in after and "schedule" not in document:
        message = '"within" needs a schedule: without one no run waits'
        at.child("within").refuse_key(message, "leave it out")


def _refuse_more_than_name(entry: str | Document, at: At) -> None:
    """Report what a due run cannot have: it waits for completed runs, and follows none of them."""
    if isinstance(entry, str):
        return
    if entry.get("when", When.COMPLETED) != When.COMPLETED:
        message = f'"when: {entry["when"]}" does not go with a schedule'
        hint = "a due run waits for completed runs; without a schedule it follows every end"
        at.child("when").refuse_key(message, hint)
    if entry.get("with"):
        message = '"with" does not go with a schedule: a due run follows no single run'
        at.child("with").refuse_key(message, "leave out the schedule")


def _check_handed(document: Document, entry: str | Document, at: At) -> None:
    """Check what an entry of `after` gives to inputs, and that no other input is left without."""
    inputs = document.get("inputs", {})
    given = {} if isinstance(entry, str) else entry.get("with", {})
    for name, source in given.items():
        if source is not INVALID:
            _check_source(name, parse_source(source), inputs, at.child("with").child(name))
    for name, declared in inputs.items():
        if declared is not INVALID and declared.get("default") is None and name not in given:
            message = f"nobody gives input {quoted(name)} to a run that follows {job_of(entry)}"
            hint = f"give it a default, or a value: with: {{{name}: outputs.KEY}}"
            at.refuse(message, hint)


def _check_source(name: str, source: Source, inputs: Document, at: At) -> None:
    if name not in inputs:
        hint = did_you_mean(name, inputs) or "declare it under inputs"
        at.refuse_key(f"the job has no input {quoted(name)}", hint)
        return
    declared = inputs[name]
    if declared is INVALID:
        return
    kind = declared.get("type", InputType.STRING)
    if source.is_file != (kind == "file"):
        what = "an artifact" if source.is_file else f"{source.origin} of a run"
        hint = f"type: file, for input {name}" if source.is_file else "artifacts.PATH is a file"
        at.refuse(f"input {quoted(name)} is of type {kind}: it cannot be {what}", hint)
    elif source.origin in (Origin.RUN, Origin.JOB, Origin.STATE) and kind not in _TEXTS:
        at.refuse(f"input {quoted(name)} must be {TYPE_WORDS[kind]}: {source.origin} is text")


_ANCHOR = datetime(2000, 1, 1, tzinfo=UTC)  # whether a schedule is valid does not depend on it
_PATH = re.compile(r"(?P<field>\w+)(?:\[(?P<index>\d+)\])?")


def check_job(
    document: Document, written: Mapping[str, object], at: At, *, is_whole: bool = False
) -> None:
    """Apply every rule. `written` is the job before its fields were checked and merged.

    `is_whole`: no defaults of a project or of the store come below it any more.
    """
    _check_type(document, written, at)
    check_source(document, at)
    check_http(document, written, at, is_whole=is_whole)
    check_external(document, written, at, is_whole=is_whole)
    check_plugin_type(document, written, at)
    check_short_form(document, written, at)
    check_code(document, written, at)
    check_walls(document, at, is_whole=is_whole)
    check_schedule(document, at)
    for name in ("starts", "ends"):
        _check_bound(document, at.child(name), name)
    _check_lateness(document, written, at)
    _check_retry(document.get("retry"), at.child("retry"))
    _check_exit_codes(document, written, at)
    _check_retry(document.get("probe"), at.child("probe"))
    _check_probe(document, at)
    for index, step in enumerate(document.get("steps", ())):
        if step is not INVALID:
            _check_retry(step.get("retry"), at.child("steps").child(index).child("retry"))
    _check_inputs(document.get("inputs", {}), written.get("inputs"), at.child("inputs"))
    _check_files(document, at)
    _check_unattended(document, at)
    check_demands(document, written, at)


def _check_type(document: Document, written: Mapping[str, object], at: At) -> None:
    kind = document.get("type", JobType.SHELL)
    if written.get("type") not in (None, kind) or kind in (JobType.HTTP, JobType.EXTERNAL):
        return
    if is_plugin_type(kind):
        return
    needed, foreign = ("function", "steps") if kind == JobType.PYTHON else ("steps", "function")
    # What only containers have is refused by a rule of its own: one fault is reported once.
    may_lack = stated_wall(document) is Isolation.CONTAINER or {"image", "command"} & written.keys()
    is_short = bool(set(SHORT) & written.keys())
    is_found = needed in document or bool(may_lack) or is_short
    if written.get(needed) is None and (kind == JobType.PYTHON or not is_found):
        at.refuse(f'{at.scope} has no "{needed}", which type {kind} needs')
    if written.get(foreign) is not None:
        at.child(foreign).refuse_key(f'"{foreign}" does not go with type {kind}')


def check_schedule(document: Document, at: At) -> None:
    """Report what is wrong or odd with the schedule of a job or cart."""
    expressions = document.get("schedule")
    if expressions is None or (isinstance(expressions, list) and INVALID in expressions):
        return
    schedule = build_schedule(document)
    try:
        compile_schedule(schedule, key=document.get("name", ""), anchor=_ANCHOR)
    except Invalid as error:
        _place(error.problems, at)
    else:
        _place(warnings(schedule), at)


def _check_bound(document: Document, at: At, name: str) -> None:
    """Report what a time becomes that clocks are put forward past."""
    written = datetime.fromisoformat(document[name]) if name in document else None
    if written is None or written.tzinfo is not None:
        return
    zone = load_zone(document.get("timezone", "UTC"))
    instant = zone.instant(written)
    if not zone.shows(instant, written):
        becomes = zone.local(instant).isoformat()
        at.warn(f"{document[name]} does not exist, clocks go forward: it counts as {becomes}")


def _check_lateness(document: Document, written: Mapping[str, object], at: At) -> None:
    has_objective = "start_within" in document or written.get("start_within") is not None
    if document.get("late") == Late.DROP and not has_objective:
        hint = "add start_within: how late a run may start"
        at.child("late").refuse("nothing is too late without start_within", hint)


def _place(problems: Iterable[Problem], at: At) -> None:
    """Report problems of the schedule, whose paths are relative to the job."""
    for problem in problems:
        position = at
        if match := _PATH.fullmatch(problem.path):
            position = at.child(match["field"])
            position = position.child(int(match["index"])) if match["index"] else position
        report = position.warn if problem.warning else position.refuse
        report(problem.message, problem.hint)


def _check_probe(document: Document, at: At) -> None:
    if document.get("probe") in (None, INVALID):
        return
    place = at.child("probe")
    if (kind := document.get("type")) in (JobType.HTTP, JobType.EXTERNAL):
        place.refuse(f"a job of type {kind} has no probe: the other system tells how it went")
    elif document.get("delivery") != Delivery.AT_MOST_ONCE:
        place.refuse(
            "a probe is asked about runs that are UNKNOWN, which only at_most_once leaves",
            "add delivery: at_most_once, or leave the probe out",
        )


def _check_retry(retry: Document | None, at: At) -> None:
    if not retry or "delay" not in retry or "max_delay" not in retry:
        return
    if parse_duration(retry["max_delay"]) < parse_duration(retry["delay"]):
        at.child("max_delay").refuse("max_delay is shorter than delay")


def _check_exit_codes(document: Document, written: Mapping[str, object], at: At) -> None:
    """Warn of exit codes that a retry waits for in vain, as only commands have such.

    They may come from defaults, and were taken by earlier releases.
    """
    kind, retry = document.get("type", JobType.SHELL), written.get("retry")
    if kind in (JobType.SHELL, JobType.CONTAINER) or not isinstance(retry, Mapping):
        return
    if retry.get("exit_codes") is not None:
        message = f"failures of type {kind} have no exit code, so none is ever tried again"
        at.child("retry").child("exit_codes").warn(message, "leave exit_codes out")


def _check_inputs(inputs: Document, written: object, at: At) -> None:
    variables: dict[str, str] = {}
    for name, given in inputs.items():
        twin = variables.setdefault(name.upper(), name)
        if twin != name:
            message = (
                f'inputs "{twin}" and "{name}" would both be the variable INPUT_{name.upper()}'
            )
            at.child(name).refuse_key(message)
        if given is not INVALID:
            raw = written.get(name) if isinstance(written, Mapping) else None
            _check_input(given, raw if isinstance(raw, Mapping) else given, at.child(name))


def _check_files(document: Document, at: At) -> None:
    """Report inputs that are files where they cannot be."""
    files = [
        name
        for name, given in document.get("inputs", {}).items()
        if given is not INVALID and given.get("type") == InputType.FILE
    ]
    for name in files if document.get("type") == JobType.PYTHON else ():
        message = "a function has no work folder: its inputs cannot be files"
        at.child("inputs").child(name).child("type").refuse(message)
    for index, name in enumerate(document.get("exclusive_by", ())):
        if name in files:
            message = f"input {quoted(name)} is a file, whose value is not compared"
            at.child("exclusive_by").child(index).refuse(message)


def _check_input(given: Document, written: Mapping[str, object], at: At) -> None:
    kind = InputType(given.get("type", InputType.STRING))
    has_pattern = _check_pattern(given, kind, at.child("pattern"))
    if written.get("type") not in (None, kind):
        return
    has_options = _check_options(given, written, kind, at)
    default, place = given.get("default"), at.child("default")
    if default is None:
        return
    if kind is InputType.FILE:
        place.refuse("a file has no default", "leave it out, or put the file beside the code")
        return
    if kind is not InputType.CHOICE and not is_of_type(default, kind):
        hint = "put it in quotes, or write its type" if kind is InputType.STRING else ""
        place.refuse(f"default must be {TYPE_WORDS[kind]}, not {shown(default)}", hint)
    elif has_pattern and has_options:
        declared = Input(kind, options=tuple(given.get("options", ())), **_pattern_of(given))
        _is_allowed(default, declared, "default", place)


def _pattern_of(given: Document) -> dict[str, str]:
    return {"pattern": given["pattern"]} if "pattern" in given else {}


def _check_pattern(given: Document, kind: InputType, at: At) -> bool:
    """Return whether the pattern, if there is one, can be used."""
    if "pattern" not in given:
        return True
    if kind is not InputType.STRING:
        at.refuse_key(f'"pattern" does not go with type {kind}', "it is for type: string")
        return False
    try:
        compiled(given["pattern"])
    except PatternRefused as error:
        at.refuse(f"the pattern cannot be used: {error}")
        return False
    return True


def _check_options(given: Document, written: Mapping[str, object], kind: InputType, at: At) -> bool:
    """Return whether the options are such of a choice, and each is there once."""
    options = given.get("options")
    if kind is not InputType.CHOICE:
        if options is not None:
            at.child("options").refuse_key('"options" need type: choice', "add type: choice")
        return options is None
    if options is None and written.get("options") is not None:
        return False
    if options is None:
        at.refuse(f"input {quoted(at.name)} has no options", "write options: [FIRST, SECOND]")
        return False
    first: dict[str, At] = {}
    for index, option in enumerate(options):
        if option is not INVALID:
            refuse_repeated(
                f"option {quoted(option)}", option, at.child("options").child(index), first
            )
    return INVALID not in options


def _check_unattended(document: Document, at: At) -> None:
    """Report inputs that a triggered run has, and a due one has not."""
    if "schedule" not in document:
        return
    for name, given in document.get("inputs", {}).items():
        if given is not INVALID and given.get("default") is None:
            message = f"nobody gives input {quoted(name)} to runs that are due"
            at.child("inputs").child(name).warn(message, "give it a default")
