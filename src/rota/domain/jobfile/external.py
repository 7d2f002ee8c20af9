"""Fields of jobs of type `external`: how they are checked, and what is built from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rota.domain.errors import did_you_mean
from rota.domain.external import OWN_HEADERS, RUN_FACTS, TOKEN, calls_of
from rota.domain.http import values_of
from rota.domain.jobfile.http import SUBMIT, build_call, check_url, is_sound, problems_of
from rota.domain.jobfile.kinds import INVALID, Duration
from rota.domain.jobfile.sections import Field, Section
from rota.domain.jobfile.text import At
from rota.domain.quantities import parse_duration
from rota.domain.spec import EXTERNAL_POOL, External, HttpCall, HttpMethod, InputType, JobType

_LONGEST_SILENCE = timedelta(days=30)


def _like_submit(name: str, doc: str, *examples: object) -> Field:
    """Return a field of a call as jobs of type `http` have it, said in other words."""
    return replace(SUBMIT.by_name[name], doc=doc, examples=examples)


_CALL = (
    _like_submit("url", "The address, with https:// or http://.", "https://ci.example.org/rota"),
    _like_submit("path", "Segments that follow the path of the address, each encoded."),
    _like_submit("method", "The method: `POST`, unless given."),
    SUBMIT.by_name["query"],
    _like_submit(
        "headers",
        "Headers beside Rota's own. A `secret` is a value in the servers' settings, which is for "
        "certain hosts.",
        {"Authorization": {"secret": "CI_TOKEN", "prefix": "Bearer "}},
    ),
    _like_submit(
        "body",
        "Text, or what is sent as JSON, instead of Rota's own message; `{input: NAME}`, "
        "`{run: report_url}`, `{run: report_token}` and the like are replaced.",
        {"ticket": {"input": "title"}, "token": {"run": "report_token"}},
    ),
    replace(
        SUBMIT.by_name["timeout"], kind=Duration(timedelta(milliseconds=1), timedelta(minutes=1))
    ),
)
ANNOUNCE = Section("announce", _CALL)
CANCEL = Section("external-cancel", _CALL)
EXTERNAL = Section(
    "external",
    (
        Field(
            "announce",
            ANNOUNCE,
            "The request that tells the other system of an attempt, sent until it is answered with "
            "2xx; without it, that system looks for runs itself.",
        ),
        Field("cancel", CANCEL, "The request that tells it that a run was cancelled."),
        Field(
            "heartbeat",
            Duration(timedelta(seconds=1), _LONGEST_SILENCE),
            "How long no report may come before the attempt counts as lost; the timeout alone "
            "decides, unless given.",
            examples=("5m",),
        ),
    ),
)
EXTERNAL_OF_JOB = Field(
    "external",
    EXTERNAL,
    "How another system is told of runs of type `external`, and how long it may be silent.",
    shared=False,
)
SECTIONS_OF_EXTERNAL = (EXTERNAL, ANNOUNCE, CANCEL)
PARTS_OF_EXTERNAL = {"External": EXTERNAL, "Announce": ANNOUNCE, "External cancel": CANCEL}

# What only workers have. Walls have rules of their own.
NOT_OF_EXTERNAL = (
    *("steps", "function", "source", "env", "pool", "needs"),
    *("lease", "stalled_after", "grace"),
)
_INSTEAD = {"stalled_after": "write it as heartbeat below external"}
_OF_MACHINES = ("cpu", "memory", "gpu")
NO_TIMEOUT = 'has no "timeout", which type external needs'
SET_TIMEOUT = "write timeout: 1h, how long the other system may take"
_NO_WORKER = "another system does the work, no worker"


def build_external(document: Mapping[str, Any]) -> External:
    heartbeat = document.get("heartbeat")
    return External(
        _call(document["announce"]) if "announce" in document else None,
        _call(document["cancel"]) if "cancel" in document else None,
        None if heartbeat is None else parse_duration(str(heartbeat)),
    )


def _call(document: Mapping[str, Any]) -> HttpCall:
    return build_call({"method": HttpMethod.POST, **document})


def of_no_worker(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec that come from a job being of this type."""
    if document.get("type") != JobType.EXTERNAL:
        return {}
    return {"pool": EXTERNAL_POOL, "external": build_external(document.get("external", {}))}


def lacks_timeout(document: Mapping[str, Any]) -> bool:
    """Return whether nobody would know when to stop waiting for a job's runs."""
    return document.get("type") == JobType.EXTERNAL and "timeout" not in document


def check_external(
    document: Mapping[str, Any], written: Mapping[str, object], at: At, *, is_whole: bool
) -> None:
    """Report what does not go together in a job of type `external`, or only in one."""
    if document.get("type") != JobType.EXTERNAL:
        if written.get("external") is not None:
            hint = "write type: external"
            at.child("external").refuse_key('"external" goes with type external only', hint)
        return
    for name in NOT_OF_EXTERNAL:
        if written.get(name) is not None:
            message = f'"{name}" does not go with type external: {_NO_WORKER}'
            at.child(name).refuse_key(message, _INSTEAD.get(name, "leave it out"))
    for name in _OF_MACHINES:
        if name in document.get("resources", {}):
            place = at.child("resources").child(name)
            place.refuse_key(f"{name} is a machine's: {_NO_WORKER}", "leave it out")
    if written.get("timeout") is None and lacks_timeout(document):
        if is_whole:
            at.refuse(f"{at.scope} {NO_TIMEOUT}", SET_TIMEOUT)
        else:
            at.warn(f"{at.scope} {NO_TIMEOUT}: unless its project gives one, it is refused")
    _check_files(document.get("inputs", {}), at.child("inputs"))
    external = document.get("external", {})
    if external is not INVALID and is_sound(external):
        _check_calls(document, external, at.child("external"))


def _check_files(inputs: Mapping[str, Any], at: At) -> None:
    for name, given in inputs.items():
        if given is not INVALID and given.get("type") == InputType.FILE:
            message = "an input of type external cannot be a file: nothing hands it over"
            at.child(name).child("type").refuse(message, "hand over an address as text")


def _check_calls(document: Mapping[str, Any], external: Mapping[str, Any], at: At) -> None:
    if any("url" not in external.get(name, {"url": ""}) for name in ("announce", "cancel")):
        return  # which was reported
    built = build_external(external)
    for name, call in calls_of(built):
        place = at.child(name)
        check_url(call, place.child("url"))
        for header in call.headers:
            if header.lower() in OWN_HEADERS:
                place.child("headers").child(header).refuse_key(f"only Rota sets {header}")
        if call.body is not None and call.method in (HttpMethod.GET, HttpMethod.HEAD):
            place.child("body").refuse_key(f"a {call.method} has no body", "write method: POST")
        for problem in (*_problems(name, call), *_values(call, document)):
            place.refuse(*problem)
    timeout = parse_duration(document["timeout"]) if "timeout" in document else _LONGEST_SILENCE
    if built.heartbeat is not None and built.heartbeat > timeout:
        message = "heartbeat is longer than timeout, so it never counts"
        at.child("heartbeat").refuse(message, "write a shorter one")


def _values(call: HttpCall, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    # With the name of a later call: what it must not have of answers is said below.
    yield from problems_of("", call, document.get("inputs", {}), RUN_FACTS)


def _problems(name: str, call: HttpCall) -> Iterator[tuple[str, str]]:
    if any(value.answer or value.header for value in values_of(call)):
        yield "no answer is kept that a value could be taken from", "use input, run or secret"
    shown = (call.url, *call.path, *call.query.values())
    if any(value.run == TOKEN for value in shown):
        yield "an address cannot have the token: it is shown", "send it as a header, or in the body"
    if name == "cancel" and any(value.run == TOKEN for value in values_of(call)):
        hint = did_you_mean("attempt", RUN_FACTS) or "name the run: {run: id}"
        yield "the token ends with the attempt: a cancel has none", hint
