"""The kinds of object stores, and how the usual variables of each configure it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from rota.adapters.blobs.keys import segments_of
from rota.domain.errors import Invalid

_CONNECT_LIMIT = timedelta(seconds=2)
_RETRY_LIMIT = timedelta(seconds=5)
_RETRIES = 2
_ADDRESS = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/?#@]+)(?:/(?P<prefix>[^?#]*))?")


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One kind of object store, and what of the environment configures it."""

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
    """A place in an object store, by its address."""

    kind: StoreKind
    name: str
    prefix: str  # "": the whole bucket is ours

    def connect(self, environ: Mapping[str, str]) -> ObjectStore:
        """A client for it; nothing is sent yet. `Invalid` if the variables do not suffice."""
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
    """`s3://bucket/prefix`, `gs://…` or `az://container/prefix`."""
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
