"""How a worker reaches its servers, and what it shows them.

A worker of another machine shows a token that was given to it (`ROTA_WORKER_TOKEN`), or a
credential of its own, which it got for a join token. That is in a file of its folder: the launcher
joins and writes it, the worker inside the guardian renews it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog

from rota.domain.errors import Denied, Invalid, Unavailable
from rota.domain.ids import micros
from rota.ports.clock import Clock
from rota.ports.work import Credential, JoinWish, WorkerLink
from rota.runtime.backends import needing_extra
from rota.runtime.config import host_of, is_loopback
from rota.runtime.home import credential_file, read_private, refuse_foreign, write_private
from rota.runtime.settings import Settings

if TYPE_CHECKING:
    from rota.link.grpc_client import GrpcConnector

log = structlog.get_logger()

TOKEN_VARIABLE = "ROTA_WORKER_TOKEN"  # noqa: S105 (where it is, not what it is)
JOIN_VARIABLE = "ROTA_JOIN_TOKEN"
_FIRST_PAUSE = timedelta(milliseconds=500)
_LONGEST_PAUSE = timedelta(seconds=10)

Connect = Callable[[], Awaitable[WorkerLink]]


def over_socket(path: Path) -> Connect:
    """Connect to the server on the same data folder."""
    from rota.link.local import LocalLink

    return lambda: LocalLink.connect(path)


def over_grpc(
    servers: Sequence[str], token: str | Callable[[], str], authorities: Path | None
) -> Connect:
    """Connect to any of the servers; without TLS only on loopback, and without authorities."""
    return _connector(servers, token, authorities).connect


def _connector(
    servers: Sequence[str], token: str | Callable[[], str], authorities: Path | None
) -> GrpcConnector:
    with needing_extra():
        from rota.link.grpc_client import ClientTls, GrpcAccess, GrpcConnector
    is_secure = authorities is not None or not all(is_loopback(host_of(it)) for it in servers)
    tls = ClientTls(_read(authorities)) if is_secure else None
    return GrpcConnector(GrpcAccess(tuple(servers), token, tls))


def _read(authorities: Path | None) -> bytes | None:
    if authorities is None:
        return None
    try:
        return authorities.read_bytes()
    except OSError as error:
        raise Invalid(
            f"{authorities} cannot be read: {error.strerror}", hint="see ROTA_TLS_CA"
        ) from error


class _Kept(msgspec.Struct, frozen=True):
    token: str
    expires_at: int  # microseconds, by the store's clock
    renew_at: int


class CredentialFile:
    """Credential of a worker that has joined. Implements `rota.worker.session.OwnCredential`."""

    def __init__(self, folder: Path) -> None:
        self._path = credential_file(folder)
        self._kept = _Kept("", 0, 0)

    @property
    def token(self) -> str:
        return self._kept.token

    @property
    def expires_at(self) -> int:
        """Return when it expires, in microseconds; 0: there is none."""
        return self._kept.expires_at

    @property
    def renew_at(self) -> int:
        """Return when it is to be renewed: once two thirds of its time are over."""
        return self._kept.renew_at

    def load(self) -> bool:
        """Read the file; return False if there is none that can be used.

        Raise `Denied` if it is another user's, or others may change it, or it is a link.
        """
        try:
            refuse_foreign(self._path)
            self._kept = msgspec.json.decode(read_private(self._path), type=_Kept)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Denied(
                f"{self._path} cannot be read: {error.strerror}", code="unsafe_home"
            ) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("worker.credential_unreadable", path=str(self._path), error=str(error))
            return False
        return bool(self._kept.token)

    def keep(self, credential: Credential, now: int) -> None:
        """Write a new credential down; it counts once that is durable. `OSError` if it is not."""
        left = max(credential.expires_at - now, 0)
        kept = _Kept(credential.token, credential.expires_at, credential.expires_at - left // 3)
        write_private(self._path, msgspec.json.encode(kept).decode())
        self._kept = kept


class Joining:
    """Trades a join token for the credential of a worker, before that worker starts."""

    def __init__(self, settings: Settings, folder: Path, clock: Clock) -> None:
        self._settings = settings
        self._file = CredentialFile(folder)
        self._clock = clock

    def is_needed(self, *, replaces: bool) -> bool:
        """Return whether there is a join token to be used.

        A credential that is there is used instead, unless it has expired or is to be replaced: one
        that was revoked does not come back by a join token that is still good.
        """
        settings = self._settings
        if not settings.server or not settings.join_token or settings.worker_token:
            return False
        is_there = self._file.load() and self._file.expires_at > micros(self._clock.now())
        return replaces or not is_there

    async def join(self, *, replaces: bool) -> None:
        """Join at the first server that answers, and keep the credential; `Denied` if refused."""
        settings = self._settings
        servers = _connector(settings.server, settings.join_token, settings.tls_ca)
        wish = JoinWish(settings.name, settings.pool, replaces)
        pause, told = _FIRST_PAUSE, ""
        while True:
            try:
                credential = await servers.join(wish)
            except Unavailable as error:
                if str(error) != told:
                    log.warning("worker.cannot_join", error=str(error))
                told = str(error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._file.keep(credential, micros(self._clock.now()))
                log.info("worker.joined", worker=settings.name, pool=settings.pool)
                return
