"""Blobs as objects in a bucket: S3, Google Cloud Storage, Azure Blob Storage."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import obstore
import structlog
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from rota.domain.errors import Invalid, NotFound, Unavailable
from rota.ports.blobs import segments_of

_CONNECT_LIMIT = timedelta(seconds=2)
_RETRY_LIMIT = timedelta(seconds=5)
_RETRIES = 2
_ADDRESS = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/?#@]+)(?:/(?P<prefix>[^?#]*))?")


@dataclass(frozen=True, slots=True)
class StoreKind:
    """Kind of object store, and the environment variables that configure it."""

    name: str
    store: Any  # obstore's classes share no constructor
    variables: tuple[str, ...]
    endpoints: tuple[str, ...]  # those of the variables that are addresses
    credentials: str  # which variables to check when it refuses us


_KINDS = {
    "s3": StoreKind(
        "S3",
        S3Store,
        (
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
            "AWS_ROLE_ARN",
            "AWS_ROLE_SESSION_NAME",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        ),
        ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    "gs": StoreKind(
        "Google Cloud Storage",
        GCSStore,
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_BASE_URL",
        ),
        ("GOOGLE_BASE_URL",),
        "GOOGLE_APPLICATION_CREDENTIALS",
    ),
    "az": StoreKind(
        "Azure Blob Storage",
        AzureStore,
        (
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_ENDPOINT",
            "AZURE_CLIENT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_TENANT_ID",
            "AZURE_FEDERATED_TOKEN_FILE",
        ),
        ("AZURE_STORAGE_ENDPOINT",),
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    ),
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """Place in an object store, by its address."""

    kind: StoreKind
    name: str
    prefix: str  # "": the whole bucket is ours

    def connect(self, environ: Mapping[str, str]) -> ObjectStore:
        """Create a client; nothing is sent yet. Raise `Invalid` if the variables do not suffice."""
        given = {name: environ[name] for name in self.kind.variables if environ.get(name)}
        is_plain = any(given.get(name, "").startswith("http://") for name in self.kind.endpoints)
        try:
            store: ObjectStore = self.kind.store(
                self.name,
                prefix=self.prefix or None,
                config={name.lower(): value for name, value in given.items()},
                client_options={"allow_http": is_plain, "connect_timeout": _CONNECT_LIMIT},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_LIMIT},
            )
        except (BaseError, ValueError) as error:
            raise Invalid(
                f"{self.kind.name} cannot be used: {str(error).splitlines()[0]}",
                code="invalid_address",
                hint=f"set {self.kind.credentials}",
            ) from error
        return store


def parse_bucket(address: str) -> Bucket:
    """Parse `s3://bucket/prefix`, `gs://…` or `az://container/prefix`."""
    match = _ADDRESS.fullmatch(address)
    kind = _KINDS.get(match["scheme"]) if match else None
    if match is None or kind is None:
        raise Invalid(
            f"{address!r} is no address of an object store",
            code="invalid_address",
            hint="write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
        )
    prefix = (match["prefix"] or "").strip("/")
    if prefix:
        segments_of(prefix)
    return Bucket(kind, match["bucket"], prefix)


log = structlog.get_logger()

PATIENCE = timedelta(seconds=5)  # how long a call may take, however the store behaves
_SLOWEST_BYTES_PER_SECOND = 1024 * 1024  # large blobs get more time, as if sent this slowly
_PAGE = 1_000  # keys listed or deleted in one request
_STATUS = re.compile(r"status code: (\d{3})")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = ("401", "403")


async def open_objects(
    address: str, environ: Mapping[str, str], *, patience: timedelta = PATIENCE
) -> ObjectBlobs:
    """Open the bucket of `s3://bucket/prefix`, `gs://…` or `az://container/prefix`.

    Credentials, region and endpoint are those of the store's usual variables in `environ`. An
    endpoint without TLS is used only if it was named there. Nothing is sent to the store yet: a
    server starts, and runs go on, while it is away.
    """
    bucket = parse_bucket(address)
    return ObjectBlobs(bucket, bucket.connect(environ), patience)


class ObjectBlobs:
    """Implements `rota.ports.blobs.Blobs`. Any number of servers may share a bucket.

    A put creates or does nothing (the store itself checks that), so the first one of a key wins
    and an object with a name is complete.
    """

    def __init__(self, bucket: Bucket, store: ObjectStore, patience: timedelta) -> None:
        self._bucket = bucket
        self._store = store
        self._patience = patience
        self._is_told_away = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def put(self, key: str, data: bytes) -> None:
        segments_of(key)
        async with self._noting_writes(), self._asking(key, len(data)):
            try:
                await obstore.put_async(self._store, key, data, mode="create")
            except AlreadyExistsError:
                pass  # put before, perhaps by a try of this very call whose answer was lost
            except FileNotFoundError as error:
                # A store that just starts, or a gateway before it, may say 404 to a write.
                raise self._translated(error) from error

    async def get(self, key: str) -> bytes:
        segments_of(key)
        async with self._asking(key):
            found = await obstore.get_async(self._store, key)
        # A second span of time: how much the bytes may take is known only with their size.
        async with self._asking(key, found.meta["size"]):
            return bytes(await found.bytes_async())

    async def list(self, prefix: str) -> AsyncIterator[str]:
        segments_of(prefix)
        for key in await self._keys(prefix):
            yield key

    async def delete(self, prefix: str) -> int:
        segments_of(prefix)
        keys = await self._keys(prefix)
        for start in range(0, len(keys), _PAGE):
            await self._remove(keys[start : start + _PAGE])
        return len(keys)

    async def close(self) -> None:
        """Do nothing: idle connections end by themselves."""

    async def _remove(self, keys: Sequence[str]) -> None:
        try:
            async with self._asking(keys[0]):
                await obstore.delete_async(self._store, keys)
        except NotFound:  # somebody deletes beside us: what is left goes one by one
            if len(keys) > 1:
                for key in keys:
                    await self._remove([key])

    async def _keys(self, prefix: str) -> Sequence[str]:
        """Return the key of that name and those below it, sorted: no store promises an order."""
        # A listing has only what is below a name, not the object of that very name.
        keys = {prefix} if await self._has(prefix) else set()
        pages = obstore.list(self._store, prefix, chunk_size=_PAGE)
        while True:
            async with self._asking(prefix):
                page = await anext(pages, None)
            if page is None:
                return sorted(keys)
            keys.update(each["path"] for each in page)

    async def _has(self, key: str) -> bool:
        try:
            async with self._asking(key):
                await obstore.head_async(self._store, key)
        except NotFound:
            return False
        return True

    @asynccontextmanager
    async def _noting_writes(self) -> AsyncIterator[None]:
        """Log once when the store refuses writes, and once when it accepts them again."""
        try:
            yield
        except Unavailable as error:
            if not self._is_told_away:
                log.warning("blobs.away", error=error.message, hint=error.hint)
            self._is_told_away = True
            raise
        if self._is_told_away:
            log.info("blobs.back")
        self._is_told_away = False

    @asynccontextmanager
    async def _asking(self, key: str, size: int = 0) -> AsyncIterator[None]:
        """Bound a call in time and translate its errors."""
        allowed = self._patience.total_seconds() + size / _SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(allowed):
                yield
        except TimeoutError as error:
            raise self._away(f"no answer within {allowed:.0f} s") from error
        except FileNotFoundError as error:
            if any(word in str(error) for word in _NO_BUCKET):
                raise self._missing_bucket() from error
            raise NotFound(f"there is no blob {key}", facts={"key": key}) from error
        except BaseError as error:
            raise self._translated(error) from error

    def _translated(self, error: BaseError | FileNotFoundError) -> Unavailable:
        text = str(error)
        status = _STATUS.search(text)
        if status is not None and status[1] in _DENIED:
            return self._denied()
        if any(word in text for word in _NO_BUCKET):
            return self._missing_bucket()
        return self._away(text.splitlines()[0])

    def _away(self, why: str) -> Unavailable:
        return Unavailable(
            f"{self._bucket.kind.name} cannot be used: {why}",
            code="blobs_unreachable",
            hint="is the store up, and is its endpoint the right one?",
        )

    def _denied(self) -> Unavailable:
        return Unavailable(
            f"{self._bucket.kind.name} refuses us the bucket {self._bucket.name},"
            " or it does not exist",
            code="blobs_denied",
            hint=f"check {self._bucket.kind.credentials}, and what they may do in that bucket",
        )

    def _missing_bucket(self) -> Unavailable:
        return Unavailable(
            f"{self._bucket.kind.name} has no bucket {self._bucket.name}",
            code="no_bucket",
            hint="create it, or name another one in ROTA_BLOBS",
        )
