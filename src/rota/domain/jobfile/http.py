"""Fields of jobs of type `http`: how they are checked, and what is built from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rota.domain.addresses import parse_target
from rota.domain.errors import Invalid, did_you_mean, listed, quoted, shown
from rota.domain.http import (
    MAX_BODY,
    OWN_HEADERS,
    RUN_FACTS,
    SOURCES,
    calls_of,
    value_in,
    values_of,
)
from rota.domain.jobfile.kinds import INVALID, Choice, Duration, Refused, Scalar, Schema, Text
from rota.domain.jobfile.sections import NAME, VARIABLE, Field, ListOf, MapOf, Section
from rota.domain.jobfile.slips import HTTP_ADVICE
from rota.domain.jobfile.text import MAX_NAME, At
from rota.domain.quantities import parse_duration
from rota.domain.run import why_not_portable
from rota.domain.spec import (
    Http,
    HttpCall,
    HttpMethod,
    HttpResult,
    HttpState,
    HttpValue,
    JobType,
)

_MAX_TEXT = 8_192
_POINTER = r"(?:/(?:[^~/\x00-\x1f]|~[01])*)+"
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
_DEFAULT_CALL = HttpCall(HttpValue())
_DEFAULT = Http(_DEFAULT_CALL)
_MAX_CODES = 20
_FORMS = f"text, or one of {{{': …}, {'.join(SOURCES)}: …}}"


@dataclass(frozen=True, slots=True)
class ValueOf(Scalar):
    """Value that is known when the request is sent: written as it is, or taken from somewhere."""

    words: str = _FORMS

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, Mapping):
            return Text(_FORMS, _MAX_TEXT, min_length=0, takes_numbers=True).accept(value, at)
        if value_in(value) is None:
            known = [str(name) for name in value if name not in (*SOURCES, "prefix")]
            hint = did_you_mean(known[0], SOURCES) if known else ""
            raise Refused(hint=hint or f"name exactly one of {listed(SOURCES)}")
        for name, text in value.items():
            Text(max_length=_MAX_TEXT).accept(text, at.child(str(name)))
        return dict(value)

    def schema(self) -> Schema:
        text = {"type": "string", "minLength": 1, "maxLength": _MAX_TEXT}
        taken: list[Schema] = [
            {
                "type": "object",
                "properties": {name: text, "prefix": text},
                "required": [name],
                "additionalProperties": False,
            }
            for name in SOURCES
        ]
        return {"anyOf": [{"type": ["string", "number", "boolean"]}, *taken]}


@dataclass(frozen=True, slots=True)
class Body(Scalar):
    """Body of a request: text, or anything that JSON has."""

    words: str = "text, or a mapping or list that is sent as JSON"

    def accept(self, value: object, at: At) -> object:
        if complaint := why_not_portable(value):
            raise Refused(f"{at.name}: {complaint}")
        try:
            size = len(json.dumps(value).encode())
        except (TypeError, ValueError) as error:
            raise Refused from error
        if size > MAX_BODY:
            raise Refused(f"{at.name} must have at most {MAX_BODY // 1024 // 1024} MiB")
        return value

    def schema(self) -> Schema:
        return {"type": ["string", "object", "array", "number", "boolean"]}


_VALUE = ValueOf()
_HEADER = Text("the name of a header", 100, pattern=_HEADER_NAME)
_QUERY = Text("the name of a parameter", MAX_NAME, pattern=r"[^\x00-\x1f]+")
_POINTER_TEXT = Text("a JSON pointer such as /status", 500, pattern=_POINTER)
_WORD = Text("a word of at most 128 characters", MAX_NAME, pattern=r"[^\x00-\x1f]{0,128}")
_CODE = Text("a status such as 200, or 2xx", 3, pattern=r"[1-5](?:[0-9]{2}|xx)", takes_numbers=True)
_CODES = ListOf(_CODE, most=_MAX_CODES, least=1)
_LIMIT = Duration(timedelta(milliseconds=1), timedelta(hours=1))

_CALL = (
    Field(
        "url",
        _VALUE,
        "The address, with https:// or http://. In `status` and `cancel` it may come from the "
        "answer to `submit`: `{header: Location}`, `{answer: /links/self}`.",
        required=True,
        examples=("https://pay.example.org/v1/payouts",),
    ),
    Field(
        "path",
        ListOf(_VALUE, most=50),
        "Segments that follow the path of the address, each encoded.",
        examples=([{"answer": "/id"}],),
    ),
    Field("method", Choice(HttpMethod), "`POST` where there is a body, else `GET`, unless given."),
    Field(
        "query",
        MapOf(_QUERY, _VALUE, most=100),
        "Parameters that follow the address, each encoded.",
        examples=({"month": {"input": "month"}},),
    ),
    Field(
        "headers",
        MapOf(_HEADER, _VALUE, most=100),
        "Headers. A `secret` is a value in the settings of workers, which is for certain hosts.",
        examples=({"Authorization": {"secret": "PAY_TOKEN", "prefix": "Bearer "}},),
    ),
    Field(
        "body",
        Body(),
        "Text, or a mapping or list that is sent as JSON; `{input: NAME}` and the like in it are "
        "replaced by what they name.",
        examples=({"amount": {"input": "amount"}},),
    ),
    Field("timeout", _LIMIT, "How long one request may take, redirects included.", "30s"),
)

SUBMIT = Section("submit", _CALL)
STATUS = Section(
    "status",
    (
        *_CALL,
        Field(
            "every",
            Duration(timedelta(seconds=1), timedelta(days=1)),
            "The pause between two looks; longer where an answer asks for it (`Retry-After`).",
            "10s",
        ),
        Field(
            "patience",
            Duration(timedelta(seconds=1), timedelta(days=7)),
            "How long no answer of use may come before the attempt fails; the next one goes on "
            "looking after the same work.",
            "5m",
        ),
    ),
)
CANCEL = Section("cancel", _CALL)
RESULT = Section(
    "result",
    (
        Field(
            "completed", _CODES, "Statuses that mean an end that is well.", ["2xx"], ([200, 201],)
        ),
        Field(
            "running",
            _CODES,
            "Statuses that mean that the work goes on; `202` where there is a `status`.",
            examples=([202],),
        ),
        Field(
            "pointer",
            _POINTER_TEXT,
            "A JSON pointer to the value in the answer that tells how the work stands.",
            examples=("/state",),
        ),
        Field(
            "values",
            MapOf(_WORD, Choice(HttpState), most=100),
            "What that value means: completed, failed or running.",
            examples=({"paid": "completed", "refused": "failed", "pending": "running"},),
        ),
        Field("otherwise", Choice(HttpState), "What any other value means.", "failed"),
        Field(
            "message",
            _POINTER_TEXT,
            "A JSON pointer to why it failed; where such words usually are, unless given.",
            examples=("/error/text",),
        ),
        Field(
            "progress",
            _POINTER_TEXT,
            "A JSON pointer to a number from 0 to 100 in answers while it goes on.",
            examples=("/percent",),
        ),
        Field(
            "outputs",
            MapOf(VARIABLE, _POINTER_TEXT, most=100),
            "Outputs of the run, each with a JSON pointer into the last answer.",
            examples=({"receipt": "/receipt/id"},),
        ),
    ),
)
HTTP = Section(
    "http",
    (
        Field("submit", SUBMIT, "The request that begins the work.", required=True),
        Field(
            "status",
            STATUS,
            "The request that asks how the work stands, again and again; without it, the answer to "
            "`submit` is the end.",
        ),
        Field("cancel", CANCEL, "The request that stops the work."),
        Field("result", RESULT, "What the last answer means; any 2xx is good, unless given."),
    ),
    advice=HTTP_ADVICE,
)
HTTP_OF_JOB = Field("http", HTTP, "The requests of a job of type `http`.", shared=False)
SECTIONS_OF_HTTP = (HTTP, SUBMIT, STATUS, CANCEL, RESULT)
PARTS_OF_HTTP = {
    "Http": HTTP,
    "Http submit": SUBMIT,
    "Http status": STATUS,
    "Http cancel": CANCEL,
    "Http result": RESULT,
}

# What only commands and functions have; walls have rules of their own.
NOT_OF_HTTP = ("steps", "function", "source", "env")
_OF_MACHINES = ("cpu", "memory", "gpu")
_NO_MACHINE = "another system does the work, not the worker's machine"


def build_http(document: Mapping[str, Any]) -> Http:
    status = document.get("status")
    result = _result(document.get("result", {}), has_status=status is not None)
    return Http(
        submit=build_call(document["submit"]),
        result=result,
        status=None if status is None else build_call(status),
        every=_duration(status, "every", _DEFAULT.every),
        patience=_duration(status, "patience", _DEFAULT.patience),
        cancel=build_call(document["cancel"]) if "cancel" in document else None,
    )


def _duration(document: Mapping[str, Any] | None, name: str, usual: timedelta) -> timedelta:
    return parse_duration(str(document[name])) if document and name in document else usual


def build_call(document: Mapping[str, Any]) -> HttpCall:
    body = document.get("body")
    usual = HttpMethod.GET if body is None else HttpMethod.POST
    return HttpCall(
        url=_value(document["url"]),
        method=HttpMethod(document.get("method", usual)),
        path=tuple(map(_value, document.get("path", ()))),
        query={name: _value(each) for name, each in document.get("query", {}).items()},
        headers={name: _value(each) for name, each in document.get("headers", {}).items()},
        body=body,
        timeout=_duration(document, "timeout", _DEFAULT_CALL.timeout),
    )


def _value(written: object) -> HttpValue:
    if isinstance(written, Mapping):
        return HttpValue(**written)
    return HttpValue(str(written))


def _result(document: Mapping[str, Any], *, has_status: bool) -> HttpResult:
    usual = ("202",) if has_status else ()
    return HttpResult(
        completed=tuple(map(str, document.get("completed", ("2xx",)))),
        running=tuple(map(str, document.get("running", usual))),
        pointer=document.get("pointer", ""),
        values={word: HttpState(state) for word, state in document.get("values", {}).items()},
        otherwise=HttpState(document.get("otherwise", HttpState.FAILED)),
        message=document.get("message", ""),
        progress=document.get("progress", ""),
        outputs=dict(document.get("outputs", {})),
    )


def check_http(
    document: Mapping[str, Any], written: Mapping[str, object], at: At, *, is_whole: bool
) -> None:
    """Report what does not go together in a job of type `http`, or only in one."""
    is_http = document.get("type") == JobType.HTTP
    if not is_http:
        if written.get("http") is not None:
            at.child("http").refuse_key('"http" goes with type http only', "write type: http")
        return
    for name in NOT_OF_HTTP:
        if written.get(name) is not None:
            at.child(name).refuse_key(f'"{name}" does not go with type http: {_NO_MACHINE}')
    for name in _OF_MACHINES:
        if name in document.get("resources", {}):
            place = at.child("resources").child(name)
            place.refuse_key(f"{name} is a machine's: {_NO_MACHINE}")
    http = document.get("http")
    if http is None:
        if written.get("http") is None:
            hint = "write http: {submit: {url: https://…}}"
            at.refuse(f'{at.scope} has no "http", which type http needs', hint)
        return
    if http.get("submit") not in (None, INVALID) and is_sound(http):
        _check_calls(document, http, at.child("http"))


def is_sound(value: object) -> bool:
    """Return whether nothing in it was refused before."""
    if isinstance(value, Mapping):
        return all(map(is_sound, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_sound, value))
    return value is not INVALID


def _check_calls(document: Mapping[str, Any], http: Mapping[str, Any], at: At) -> None:
    for name in ("submit", "status", "cancel"):
        if name in http and "url" not in http[name]:
            return  # which was reported
    inputs = document.get("inputs", {})
    for name, call in calls_of(build_http(http)):
        place = at.child(name)
        check_url(call, place.child("url"))
        for header in call.headers:
            if header.lower() in OWN_HEADERS:
                place.child("headers").child(header).refuse_key(f"only Rota sets {header}")
        if call.body is not None and call.method in (HttpMethod.GET, HttpMethod.HEAD):
            place.child("body").refuse_key(f"a {call.method} has no body", "write method: POST")
        for problem in problems_of(name, call, inputs):
            place.refuse(*problem)
    _check_result(http, at)


def check_url(call: HttpCall, at: At) -> None:
    if call.url.secret or any(each.secret for each in call.path):
        at.refuse("an address cannot have a secret: it is shown", "send it as a header")
    if call.url == HttpValue(call.url.text):
        try:
            parse_target(call.url.text)
        except Invalid as error:
            at.refuse(error.message)


def problems_of(
    name: str, call: HttpCall, inputs: Mapping[str, Any], facts: Sequence[str] = RUN_FACTS
) -> Iterator[tuple[str, str]]:
    """Yield what values of a request cannot be, each with a hint."""
    for value in values_of(call):
        if value.input and value.input not in inputs:
            hint = did_you_mean(value.input, inputs) or "declare it under inputs"
            yield f"the job has no input {quoted(value.input)}", hint
        if (value.answer or value.header) and name == "submit":
            yield "submit comes first: there is no answer yet", "use it in status or cancel"
        if value.answer and not re.fullmatch(_POINTER, value.answer):
            yield f"{shown(value.answer)} is not a JSON pointer", f"write /{value.answer}"
        if value.run and value.run not in facts:
            hint = did_you_mean(value.run, facts)
            yield f"{shown(value.run)} is not one of {listed(facts)}", hint
        if value.secret and not re.fullmatch(NAME.pattern, value.secret):
            yield f"{shown(value.secret)} cannot be the name of a secret", ""


def _check_result(http: Mapping[str, Any], at: At) -> None:
    result: Mapping[str, Any] = http.get("result", {})
    place = at.child("result")
    if "values" in result and "pointer" not in result:
        place.child("values").refuse_key("values of what? there is no pointer", "write pointer")
    if "pointer" in result and "values" not in result:
        place.child("pointer").refuse_key("what its values mean is not said", "write values")
    if "status" in http:
        return
    if HttpState.RUNNING in _states(result) or "running" in result:
        message = "work that goes on has to be looked after: there is no status"
        place.refuse(message, "add http.status, the request that asks how it stands")
    if "cancel" in http:
        at.child("cancel").refuse_key("without status nothing goes on that could be stopped")


def _states(result: Mapping[str, Any]) -> Sequence[str]:
    return [*result.get("values", {}).values(), result.get("otherwise", "")]
