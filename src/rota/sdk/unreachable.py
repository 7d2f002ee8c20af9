"""Why a server gave no answer, told by how the connection failed."""

from __future__ import annotations

from collections.abc import Iterator

from rota.sdk.errors import Unreachable

_MISMATCH = "mismatch"  # the word of OpenSSL for names and addresses alike
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
_HUNG_UP = ("without response", "without sending a response")


def unreachable(address: str, error: Exception) -> Unreachable:
    """The error to raise, with what to try next."""
    reason = str(error) or type(error).__name__
    if address.startswith("https:"):
        if doubt := _doubt(error):
            return _untrusted(address, doubt)
        if any(word in reason.upper() for word in _NO_TLS):
            plain = "http:" + address.removeprefix("https:")
            return Unreachable(f"{address} does not speak TLS", hint=f"try ROTA_URL={plain}")
    hint = "is it running? `rota up` starts one; ROTA_URL names another"
    if address.startswith("http:") and any(word in reason for word in _HUNG_UP):
        hint = "does it speak TLS? then its address begins with https://"
    return Unreachable(f"no answer from {address}: {reason}", hint=hint)


def _untrusted(address: str, doubt: str) -> Unreachable:
    if _MISMATCH in doubt:
        return Unreachable(
            f"the certificate of {address} is for another name: {doubt}",
            hint="call the server by a name that its certificate has",
        )
    return Unreachable(
        f"the certificate of {address} is not trusted: {doubt}",
        hint="set ROTA_TLS_CA to the PEM file of the authority that signed it",
    )


def _doubt(error: BaseException) -> str:
    """What is wrong with the certificate; "": nothing is known to be."""
    doubts = (getattr(each, "verify_message", "") for each in _causes(error))
    return next((doubt for doubt in doubts if doubt), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it: HTTP clients wrap what TLS said."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
