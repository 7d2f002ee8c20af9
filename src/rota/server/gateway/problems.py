"""Errors as problem responses: one table from code to status, one shape for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rota.api.answers import ProblemReport
from rota.domain.errors import Invalid, NotFound, Problem, RotaError, Unavailable, codes_of, quoted
from rota.domain.jobfile.sections import NAME
from rota.server.gateway.routing import encode, problem_answers

MEDIA_TYPE = "application/problem+json"

# A code that is not here has the status of its error's class, whose code is. Those of gRPC are in
# `rota.ports.rpc`.
STATUS: Mapping[str, int] = {
    "malformed": 400,
    "unknown_parameter": 400,
    "bad_cursor": 400,
    "bad_filter": 400,
    "unauthenticated": 401,
    "bad_credentials": 401,
    "denied": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "etag_mismatch": 412,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid": 422,
    "too_many_logins": 429,
    "too_many_files": 429,
    "too_many_at_once": 429,
    "too_many_streams": 429,
    "internal": 500,
    "unavailable": 503,
}
MAX_DETAIL = 2_000
HIDDEN = RotaError(
    "something unexpected went wrong",
    code="internal",
    hint="the server's log has the details under this trace_id",
)


def status_of(error: RotaError) -> int:
    """Return the status of an error's own code, else that of its class."""
    return next((STATUS[code] for code in codes_of(error) if code in STATUS), STATUS["internal"])


def answer(error: Exception, trace_id: str) -> Response:
    """Build the problem response of any error; internal details are left out."""
    match error:
        case RotaError():
            return _problem(error, trace_id)
        case RequestValidationError():
            return _problem(_from_validation(error.errors()), trace_id)
        case HTTPException():
            response = _problem(_from_http(error), trace_id)
            response.headers.update(error.headers or {})
            return response
        case _:
            return _problem(HIDDEN, trace_id)


async def handle(request: Request, error: Exception) -> Response:
    """Handle every `RotaError`."""
    return answer(error, request.state.trace_id)


def _problem(error: RotaError, trace_id: str) -> Response:
    status = status_of(error)
    problems = error.problems if isinstance(error, Invalid) else ()
    report = ProblemReport(
        type=f"urn:rota:problem:{error.code}",
        title=error.code.replace("_", " ").capitalize(),
        status=status,
        detail=error.message[:MAX_DETAIL],
        hint=error.hint,
        code=error.code,
        errors=problem_answers(problems),
        trace_id=trace_id,
    )
    return Response(encode(report), status, _headers(error, status), MEDIA_TYPE)


def _headers(error: RotaError, status: int) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    seconds = retry_after(error)
    return {"Retry-After": seconds} if seconds else {}


def retry_after(error: RotaError) -> str:
    """Return after how many seconds to try again; "": that would not help."""
    is_passing = isinstance(error, Unavailable)
    return str(error.facts.get("retry_after_seconds", 1)) if is_passing else ""


def _from_http(error: HTTPException) -> RotaError:
    match error.status_code:
        case 404:
            return NotFound("there is nothing at this address", hint="/api/v1/docs lists what is")
        case 405:
            return Invalid("this address does not take that method", code="method_not_allowed")
        case 413:
            return Invalid(error.detail, code="too_large")
        case _:
            return Invalid("the body cannot be read", code="malformed", hint="send valid JSON")


def _from_validation(errors: Sequence[Any]) -> RotaError:
    """Convert validation errors: wrong values are `invalid`, unreadable bodies `malformed`."""
    problems = [_fault(error) for error in errors]
    places = {error["loc"][0] for error in errors}
    is_readable = places == {"body"} and all(error["type"] != "json_invalid" for error in errors)
    what = "body" if "body" in places else "request"
    count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
    return Invalid(
        f"the {what} has {count}", problems, code="invalid" if is_readable else "malformed"
    )


def _fault(error: Mapping[str, Any]) -> Problem:
    where, *path = error["loc"]
    dotted = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    message = _message(error)
    if reason := error.get("ctx", {}).get("error") if error["type"] == "json_invalid" else None:
        return Problem(f"not valid JSON: {reason}")
    return Problem(message if where == "body" else f"{where}: {message}", dotted.removeprefix("."))


def _message(error: Mapping[str, Any]) -> str:
    """Return the message of a validation error in Rota's words rather than the library's."""
    if error["type"] == "extra_forbidden":
        return f"unknown key {quoted(str(error['loc'][-1]))}"
    if error["type"] == "missing":
        return "is missing"
    if error["type"] in ("dict_type", "model_attributes_type"):
        return "must be an object"
    if error.get("ctx", {}).get("pattern") == f"^{NAME.pattern}$":
        return f"must be {NAME.words}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message.replace("Input should be", "must be").replace("should", "must")
