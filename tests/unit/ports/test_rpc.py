from __future__ import annotations

import grpc
import pytest

from rota.domain.errors import (
    Conflict,
    Denied,
    Invalid,
    LockedTooLong,
    NotFound,
    RotaError,
    StaleTransition,
    Unavailable,
)
from rota.ports.rpc import RPC_STATUS, bearer_in, host_of_peer, rpc_status_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("…"), "INVALID_ARGUMENT"),
        (Invalid("…", code="bad_message"), "INVALID_ARGUMENT"),
        (Invalid("…", code="too_large"), "RESOURCE_EXHAUSTED"),
        (NotFound("…", code="job_not_found"), "NOT_FOUND"),
        (NotFound("…", code="session_not_found"), "ABORTED"),
        (Conflict("…"), "FAILED_PRECONDITION"),
        (StaleTransition("…"), "FAILED_PRECONDITION"),
        (Denied("…"), "PERMISSION_DENIED"),
        (Denied("…", code="unauthenticated"), "UNAUTHENTICATED"),
        (Unavailable("…"), "UNAVAILABLE"),
        (LockedTooLong("…"), "UNAVAILABLE"),
        (RotaError("…"), "INTERNAL"),
    ],
)
def test_an_error_has_one_status_in_every_service(error: RotaError, status: str) -> None:
    assert rpc_status_of(error) == status


def test_every_status_is_one_of_grpc() -> None:
    assert set(RPC_STATUS.values()) <= {status.name for status in grpc.StatusCode}


@pytest.mark.parametrize(
    ("metadata", "secret"),
    [
        ((("user-agent", "test"), ("authorization", "Bearer s3cret ")), "s3cret"),
        ((("authorization", "bearer s3cret"),), "s3cret"),
        ((("authorization", "Basic s3cret"),), ""),
        ((("authorization", "Bearer"),), ""),
        ((("authorization", b"Bearer s3cret"),), ""),
        (None, ""),
    ],
)
def test_a_secret_is_found_in_the_metadata_of_a_call(
    metadata: tuple[tuple[str, str | bytes], ...] | None, secret: str
) -> None:
    assert bearer_in(metadata) == secret


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:5000", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:5000", "2001:db8::1"),
        ("ipv6:[::1]:5000", "::1"),
        ("unix:/run/rota.sock", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_peer_is_read(peer: str, host: str) -> None:
    assert host_of_peer(peer) == host
