"""Everything that can go wrong between a program and its Rota server.

RotaApiError
├── Unreachable      no server answers, or none is known       (status None)
├── NotRota          something answers that is no Rota server
├── Invalid          the request is wrong; `errors` says where (400, 413, 422)
├── Denied           not logged in, or not allowed             (401, 403)
├── NotFound         no such thing, or none this token may see (404)
├── Conflict         the thing is not as the caller assumed    (409, 412)
├── Unavailable      the server cannot do it now               (429, 503)
├── RunNotCompleted  a run that was waited for ended otherwise (status None)
├── CartPaused       a cart that was watched needs a person    (status None)
└── CartFailed       it ended with too many failures, or early (status None)

Each has a stable text `code` for programs and a `hint` that says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.api.answers import Problem
    from rota.api.carts import CartDetail
    from rota.api.runs import Run


class RotaApiError(Exception):
    """The root; raised itself only for an answer that fits nothing below."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int | None = None,
        hint: str = "",
        errors: Sequence[Problem] = (),
        trace_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.status = status  # of the HTTP answer; None: there was none
        self.hint = hint
        self.errors = tuple(errors)
        self.trace_id = trace_id

    def __str__(self) -> str:
        lines = [self.message, *(f"  {problem}" for problem in self.errors)]
        return "\n".join([*lines, self.hint] if self.hint else lines)


class Unreachable(RotaApiError):
    """No server answers, or none is known."""

    code = "unreachable"


class NotRota(RotaApiError):
    """Something answers at that address, but not as a Rota server does."""

    code = "bad_answer"


class Invalid(RotaApiError):
    """The request is wrong."""

    code = "invalid"


class Denied(RotaApiError):
    """Not logged in, or not allowed."""

    code = "denied"


class NotFound(RotaApiError):
    """No such thing, or none that this token may see."""

    code = "not_found"


class Conflict(RotaApiError):
    """The thing is not in the state that the caller assumed."""

    code = "conflict"


class Unavailable(RotaApiError):
    """The server cannot do it now; trying later may help."""

    code = "unavailable"


class RunNotCompleted(RotaApiError):
    """A run whose output was asked for did not end well."""

    code = "run_not_completed"

    def __init__(self, run: Run) -> None:
        cause = f": {run.message or run.cause}" if run.message or run.cause else ""
        super().__init__(
            f"run {run.id} of {run.job} is {run.state}{cause}", hint=f"rota logs {run.id}"
        )
        self.run = run


class CartPaused(RotaApiError):
    """A cart that was watched does not go on before a person decides."""

    code = "cart_paused"

    def __init__(self, cart: CartDetail) -> None:
        hint = f"rota cart show {cart.id} --failed; then retry or resume it"
        super().__init__(f"cart {cart.id} ({cart.name}) is paused: {cart.summary}", hint=hint)
        self.cart = cart


class CartFailed(RotaApiError):
    """A cart that was watched ended with more failures than it may have, or was called off."""

    code = "cart_failed"

    def __init__(self, cart: CartDetail) -> None:
        message = f"cart {cart.id} ({cart.name}) is {cart.state}: {cart.summary}"
        super().__init__(message, hint=f"rota cart show {cart.id} --failed")
        self.cart = cart


BY_STATUS: dict[int, type[RotaApiError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: Invalid,
    422: Invalid,
    429: Unavailable,
    503: Unavailable,
}
