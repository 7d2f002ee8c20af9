"""The inputs of a run: what a trigger gives, checked against what the job declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.report import At, Report
from rota.domain.jobfile.text import UnusableNumber, resolve
from rota.domain.jobfile.vocabulary import MAX_ENV_BYTES, InputValue
from rota.domain.spec import Input, InputType, JobSpec
from rota.domain.wording import did_you_mean, quoted, shown

JsonScalar = str | int | float | bool

TYPE_WORDS = {
    InputType.STRING: "text",
    InputType.INTEGER: "a whole number",
    InputType.NUMBER: "a number",
    InputType.BOOLEAN: "true or false",
}


def parse_inputs(spec: JobSpec, given: Mapping[str, object]) -> dict[str, JsonScalar]:
    """A value for every input the job declares; `Invalid` with all that is wrong.

    Text is read as a number or boolean where the input is one: flags and forms have only text.
    """
    [values] = parse_input_sets(spec, [given])
    return values


def parse_input_sets(
    spec: JobSpec, sets: Iterable[Mapping[str, object]]
) -> list[dict[str, JsonScalar]]:
    """The same for many sets of inputs; `Invalid` is about the first that has something wrong."""
    report = Report()
    at = At.root(report)
    values = []
    for given in sets:
        values.append(check_inputs(spec, given, at))
        report.raise_errors("the set of inputs")
    return values


def check_inputs(
    spec: JobSpec, given: Mapping[str, object], at: At, *, may_lack: bool = False
) -> dict[str, JsonScalar]:
    """The same, with what is wrong reported at the position of each input.

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


def is_of_type(value: object, kind: InputType) -> TypeGuard[JsonScalar]:
    match kind:
        case InputType.STRING:
            return isinstance(value, str)
        case InputType.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case InputType.NUMBER:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case InputType.BOOLEAN:
            return isinstance(value, bool)


def _value(declared: Input, given: object, at: At) -> JsonScalar | None:
    """The value, or None after reporting why there is none."""
    if given is None:
        if declared.default is None:
            at.refuse(f"input {quoted(at.name)} must be given", declared.help)
        return declared.default
    if InputValue().check(given, at) is INVALID:
        return None
    value = _read(given, declared.type)
    if is_of_type(value, declared.type):
        return value
    at.refuse(f"input {quoted(at.name)} must be {TYPE_WORDS[declared.type]}, not {shown(given)}")
    return None


def _read(given: object, kind: InputType) -> object:
    if kind is InputType.STRING or not isinstance(given, str):
        return given
    try:
        return resolve(given.strip())
    except UnusableNumber:
        return given


def _refuse_oversize(values: Mapping[str, JsonScalar | None], at: At) -> None:
    size = sum(len(str(value).encode()) for value in values.values())
    if size > MAX_ENV_BYTES:
        at.refuse(f"the inputs have more than {MAX_ENV_BYTES // 1024} KiB in total")
