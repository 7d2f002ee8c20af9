from __future__ import annotations

import pytest
from obstore.exceptions import UnknownConfigurationKeyError
from obstore.store import S3Store

from rota.blobs.objects import parse_bucket
from rota.domain.errors import Invalid

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("address", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/rota/prod", "bucket", "rota/prod"),
        ("s3://bucket/rota/", "bucket", "rota"),
        ("gs://bucket/rota", "bucket", "rota"),
        ("az://container/rota", "container", "rota"),
    ],
)
def test_an_address_names_bucket_and_prefix(address: str, bucket: str, prefix: str) -> None:
    parsed = parse_bucket(address)

    assert (parsed.name, parsed.prefix) == (bucket, prefix)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "s3://",
        "s3:bucket",
        "s3:///prefix",
        "ftp://bucket",
        "file:///folder",
        "s3://key:secret@bucket",
        "s3://bucket/../other",
        "s3://bucket/a b",
        "s3://bucket/prefix?region=x",
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(Invalid):
        parse_bucket(address)


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)  # the library looks there itself

    with pytest.raises(Invalid) as caught:
        parse_bucket("s3://bucket").connect({"AWS_ACCESS_KEY_ID": "key"})

    assert "AWS_SECRET_ACCESS_KEY" in caught.value.hint


@pytest.mark.parametrize(
    ("endpoint", "is_allowed"),
    [({}, False), ({"AWS_ENDPOINT_URL": "https://store"}, False)]
    + [({name: "http://store"}, True) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")],
)
def test_only_a_named_endpoint_may_do_without_tls(
    endpoint: dict[str, str], is_allowed: bool
) -> None:
    store = parse_bucket("s3://bucket").connect({**KEYS, **endpoint})

    assert isinstance(store, S3Store)
    assert store.client_options is not None
    assert store.client_options["allow_http"] in (
        (True, "true") if is_allowed else (False, "false")
    )


def test_every_variable_is_known_to_its_store() -> None:
    for scheme in ("s3", "gs", "az"):
        kind = parse_bucket(f"{scheme}://bucket").kind
        for name in kind.variables:
            assert _is_known(scheme, name), name


def _is_known(scheme: str, name: str) -> bool:
    """A store may miss other settings or refuse the value, but knows the name."""
    try:
        parse_bucket(f"{scheme}://bucket").connect({name: "x"})
    except Invalid as error:
        return not isinstance(error.__cause__, UnknownConfigurationKeyError)
    return True
