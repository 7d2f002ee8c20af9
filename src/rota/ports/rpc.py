"""Agreement of the two gRPC services, for workers and for clients, so that they answer alike.

The link and the gateway each serve one and do not know one another, so this is beneath both. It
names statuses as texts and imports nothing of gRPC, which only these two may know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from rota.domain.errors import RotaError, codes_of

MAX_MESSAGE = 32 * 1024 * 1024  # bytes; a larger one ends the call

# Names of gRPC's status codes. A code that is not here has the status of its error's class.
RPC_STATUS: Mapping[str, str] = {
    "malformed": "INVALID_ARGUMENT",
    "bad_cursor": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "bad_credentials": "UNAUTHENTICATED",
    "denied": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "session_not_found": "ABORTED",  # by a newer stream of the same worker
    "conflict": "FAILED_PRECONDITION",
    "etag_mismatch": "ABORTED",
    "too_large": "RESOURCE_EXHAUSTED",
    "too_many_files": "RESOURCE_EXHAUSTED",
    "too_many_logins": "RESOURCE_EXHAUSTED",
    "too_many_streams": "RESOURCE_EXHAUSTED",
    "invalid": "INVALID_ARGUMENT",
    "internal": "INTERNAL",
    "unavailable": "UNAVAILABLE",
}


def rpc_status_of(error: RotaError) -> str:
    """Return the status of an error's own code, else that of its class."""
    codes = (code for code in codes_of(error) if code in RPC_STATUS)
    return RPC_STATUS[next(codes, "internal")]


def host_of_peer(peer: str) -> str:
    """Return the address in what gRPC calls a peer: `ipv4:192.0.2.1:5000`; "" of a local socket."""
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(address.rpartition(":")[0]).strip("[]")


def bearer_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Return the secret of `authorization: Bearer SECRET`; "" if there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, secret = value.partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else ""
    return ""
