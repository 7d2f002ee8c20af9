"""What is accepted as a URL is read alike by everybody, and no odd form reaches what is closed."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

import httpx
from hypothesis import example, given
from hypothesis import strategies as st

from rota.domain.addresses import parse_target, why_closed
from rota.domain.errors import Invalid

_PIECES = st.sampled_from(
    [
        *("http", "https", "://", "//", "/", "\\", "@", ":", "?", "#", "[", "]", "%", ".", "-"),
        *("example", "org", "127", "0", "1", "0x7f", "2130706433", "::1", "ffff", "fe80", "80"),
        *("ü", "１", "。", "ß", "\u200d", " ", "\t", "\n", "%40", "%2e", "xn--", "a" * 64),
    ]
)
URLS = st.lists(_PIECES, max_size=12).map("".join) | st.builds(
    "http://{}/".format, st.lists(_PIECES, min_size=1, max_size=6).map("".join)
)
V4 = st.integers(0, 2**32 - 1).map(IPv4Address)
V6 = st.integers(0, 2**128 - 1).map(IPv6Address)


@given(URLS | st.text(max_size=40))
@example("http://0x7f.1/")
@example("http://a@b/")
@example("http://a:b/")
def test_other_readers_find_the_same_host_and_port(url: str) -> None:
    try:
        target = parse_target(url)
    except Invalid:
        return

    text = str(target)
    assert parse_target(text) == target
    # Whoever reads the normal form, or what was written, comes to the same machine.
    parts = urlsplit(text)
    assert (parts.scheme, parts.hostname) == (target.scheme, target.host)
    assert (parts.port or {"http": 80, "https": 443}[parts.scheme]) == target.port
    with suppress(httpx.InvalidURL):
        written = httpx.URL(url)
        assert written.raw_host.decode().rstrip(".").lower() == target.host


@given(V4, st.sampled_from(["{}", "{:#x}", "0{:o}"]), st.integers(1, 4))
def test_no_form_of_an_ipv4_address_but_the_usual_is_read(
    address: IPv4Address, form: str, parts: int
) -> None:
    """As `inet_aton` reads them: 1 to 4 parts in three bases, the last taking what is left."""
    octets = list(address.packed)
    head, tail = octets[: parts - 1], octets[parts - 1 :]
    text = ".".join(form.format(number) for number in (*head, int.from_bytes(tail, "big")))
    with suppress(OSError):
        assert socket.inet_aton(text) == address.packed

    try:
        target = parse_target(f"http://{text}/")
    except Invalid:
        assert text != str(address)
    else:
        assert target.literal == address


@given(V4)
def test_an_ipv4_address_is_judged_alike_in_all_its_forms(address: IPv4Address) -> None:
    mapped = ip_address((0xFFFF << 32) | int(address))
    translated = ip_address((0x64FF9B << 96) | int(address))

    assert why_closed(mapped) == why_closed(translated) == why_closed(address)


@given(V4 | V6)
def test_nothing_that_python_calls_private_is_open(address: IPv4Address | IPv6Address) -> None:
    inner = getattr(address, "ipv4_mapped", None) or address
    if not inner.is_global or inner.is_multicast or inner.is_reserved:
        assert why_closed(address)
