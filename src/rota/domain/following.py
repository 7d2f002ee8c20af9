"""Following: which ends of a run another job follows, and what it is handed of them.

Values are handed on whole, by name: `with: {rows: outputs.rows}`. There are no expressions: what
has to be worked out is worked out by one of the two jobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from rota.domain.errors import Invalid, Problem, did_you_mean, quoted
from rota.domain.spec import Follow, InputType, When
from rota.domain.states import RunState

_FAILURES = frozenset({RunState.FAILED, RunState.TIMED_OUT})
_ENDS: Mapping[When, frozenset[RunState]] = {
    When.COMPLETED: frozenset({RunState.COMPLETED}),
    When.FAILED: _FAILURES,
    When.ENDED: _FAILURES | {RunState.COMPLETED, RunState.CANCELLED},
}
FOLLOWED_STATES = _ENDS[When.ENDED]  # SKIPPED and MISSED never ran: nothing follows them
INPUT_CAUSE = "input"  # of a run that was not handed what it needs
MAX_SOURCE = 256
_MOST_COMPARED = 100  # names of outputs, of which there may be any number

_KEY = re.compile(r"[^\s\x00-\x1f\x7f]+")  # of outputs, or the path of an artifact


def is_followed(when: When, state: RunState) -> bool:
    """Return whether a run that ended so is one that a job follows."""
    return state in _ENDS[when]


def follow_words(follow: Follow) -> str:
    """Describe what is followed, behind "after": `import`, `a failed import`."""
    match follow.when:
        case When.COMPLETED:
            return follow.job
        case When.FAILED:
            return f"a failed {follow.job}"
        case When.ENDED:
            return f"any end of {follow.job}"


def may_be_followed(when: str | None, state: RunState) -> bool:
    """Return whether somebody may follow a run that ended so; most follow completed runs only.

    `when` is the last word by which others follow its job, of which `completed` is the first. None:
    nobody follows it.
    """
    if when is None or state is RunState.COMPLETED:
        return when is not None
    return when != When.COMPLETED and state in FOLLOWED_STATES


class Origin(StrEnum):
    """Part of a run that can be handed on."""

    OUTPUTS = "outputs"
    ARTIFACTS = "artifacts"
    RUN = "run"  # its id
    JOB = "job"  # its name
    STATE = "state"  # in lower case


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of the value of an input."""

    origin: Origin
    key: str = ""  # of the outputs, or path of an artifact; "": outputs as a whole

    @property
    def is_file(self) -> bool:
        return self.origin is Origin.ARTIFACTS


SOURCES = "outputs.KEY, outputs, run, job, state or artifacts.PATH"


def parse_source(text: str) -> Source:
    """Read what stands behind an input under `with`; a ValueError has a hint, or is empty."""
    word, dot, key = text.partition(".")
    if word not in list(Origin):
        raise ValueError(did_you_mean(word, list(Origin)))
    origin = Origin(word)
    if origin is Origin.OUTPUTS and not dot:
        return Source(origin)
    if origin not in (Origin.OUTPUTS, Origin.ARTIFACTS):
        if dot:
            raise ValueError(f"write {word}")
        return Source(origin)
    if not _KEY.fullmatch(key):
        raise ValueError(f"write {word}.{'KEY' if origin is Origin.OUTPUTS else 'PATH'}")
    return Source(origin, key)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """Run that has ended, as those see it that follow it."""

    id: str
    job: str
    state: RunState
    outputs: Any = None  # JSON; None: there are none
    artifacts: Mapping[str, Any] | None = None  # values of `type: file` by path


def files_of(follow: Follow) -> set[str]:
    """Return the paths of the artifacts that are handed on."""
    sources = map(parse_source, follow.gives.values())
    return {source.key for source in sources if source.is_file}


def values_of(follow: Follow, run: EndedRun) -> dict[str, Any]:
    """Return what each input is handed; `Invalid` has what the run does not have."""
    values: dict[str, Any] = {}
    problems = []
    for name, text in follow.gives.items():
        try:
            values[name] = _value(parse_source(text), run)
        except LookupError as error:
            problems.append(Problem(f"input {quoted(name)}: {error.args[0]}", path=name))
    if problems:
        raise Invalid("; ".join(problem.message for problem in problems), problems)
    return values


def _value(source: Source, run: EndedRun) -> Any:
    match source.origin:
        case Origin.RUN:
            return run.id
        case Origin.JOB:
            return run.job
        case Origin.STATE:
            return run.state.lower()
        case Origin.ARTIFACTS:
            if source.key not in (run.artifacts or {}):
                raise LookupError(f"{run.id} of {run.job} kept no artifact {quoted(source.key)}")
            return (run.artifacts or {})[source.key]
        case Origin.OUTPUTS:
            return _output(source.key, run)


def _output(key: str, run: EndedRun) -> Any:
    if run.outputs is None:
        raise LookupError(f"{run.id} of {run.job} left no outputs")
    if not key:
        return run.outputs
    if not isinstance(run.outputs, Mapping):
        raise LookupError(f"the outputs of {run.id} of {run.job} are a value without names")
    if run.outputs.get(key) is None:
        what = "is null" if key in run.outputs else "is not there"
        hint = did_you_mean(key, islice(run.outputs, _MOST_COMPARED))
        more = f" ({hint})" if hint else ""
        raise LookupError(f"{quoted(key)} {what} in the outputs of {run.id} of {run.job}{more}")
    return run.outputs[key]


def as_input(value: Any, kind: InputType) -> Any:
    """Convert a value for an input: text takes any value, as JSON where it is not text itself."""
    if isinstance(value, str) or kind is not InputType.STRING:
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
