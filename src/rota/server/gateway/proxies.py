"""Requests that come through proxies: from where they are, and under which address.

Forwarded headers are written by whoever wants to. They are believed from trusted proxies only, and
read from the right: what stands left of the first address that is no trusted proxy may be the
client's own invention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from rota.domain.errors import Invalid
from rota.domain.spec import DEFAULT_PROJECT

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
_Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_FORWARDED_FOR, _FORWARDED, _PROTO = b"x-forwarded-for", b"forwarded", b"x-forwarded-proto"
_SCHEMES = ("http", "https")
_LONGEST = 64  # characters of an address with its port and decoration
_public_url: ContextVar[str] = ContextVar("public_url", default="")


def link_to(path: str, project: str = DEFAULT_PROJECT) -> str:
    """Return the address of a page for others: whole if the server knows its own, else the path."""
    return _public_url.get() + in_project(path, project)


def in_project(path: str, project: str) -> str:
    """Return a path of the API that leads to something of a project."""
    if project == DEFAULT_PROJECT:  # that goes without saying
        return path
    return f"{path}{'&' if '?' in path else '?'}project={project}"


def prefix_of(url: str) -> str:
    """Return the path below which Rota is at this address; "" at the root."""
    return urlsplit(url).path.rstrip("/")


def check_prefix(prefix: str, paths: Iterable[str]) -> None:
    """Raise `Invalid` for a prefix that paths of Rota itself begin with.

    A proxy may remove the prefix or not: what it passes on must tell.
    """
    taken = next((path for path in paths if _is_below(prefix, path)), None) if prefix else None
    if taken is not None:
        raise Invalid(
            f"public_url must not end in {prefix}: {taken} is a path of Rota itself",
            code="bad_settings",
            hint="use another prefix, as https://example.org/rota, or a host name of its own",
        )


def _is_below(prefix: str, path: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


class Proxied:
    """Outermost middleware of a server that has a public address, or trusts proxies.

    It gives requests the address of their client, the scheme that the client used, and paths
    without the prefix of the public address, whether or not the proxy has removed that.
    """

    def __init__(self, app: ASGIApp, *, public_url: str, trusted: Sequence[Network]) -> None:
        self._app = app
        self._public_url = public_url
        self._prefix = prefix_of(public_url)
        self._proxies = TrustedProxies(trusted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _public_url.set(self._public_url)
            if self._prefix and _is_below(self._prefix, scope["path"]):
                scope["path"] = scope["path"].removeprefix(self._prefix) or "/"
            if (client := scope.get("client")) and self._proxies.trusts(client[0]):
                scope["client"] = (self._proxies.client_of(client[0], scope["headers"]), 0)
                scope["scheme"] = _scheme_in(scope["headers"]) or scope["scheme"]
        await self._app(scope, receive, send)


class TrustedProxies:
    """Networks of proxies whose word is taken for where a request comes from."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = tuple(networks)

    def trusts(self, peer: str) -> bool:
        """Return whether this address is that of a trusted proxy."""
        address = _parse(peer)
        return address is not None and any(address in network for network in self._networks)

    def client_of(self, peer: str, headers: _Headers) -> str:
        """Return the address of the client of a request that a trusted proxy passed on.

        Where both headers are there and differ, the proxy wrote only one of them and the client
        may have written the other: then the proxy itself is all that is known.
        """
        headers = list(headers)
        chains = (_forwarded_for(headers), _forwarded(headers))
        told = {self._nearest_client(peer, chain) for chain in chains if chain}
        return told.pop() if len(told) == 1 else peer

    def _nearest_client(self, peer: str, chain: Sequence[str]) -> str:
        """Return the first address from the right that is no trusted proxy."""
        nearest = peer
        for node in reversed(chain):
            address = _parse(node)
            if address is None:
                break
            nearest = str(address)
            if not self.trusts(nearest):
                break
        return nearest


def _values(headers: _Headers, name: bytes) -> list[str]:
    """Return the parts of a header that is a list, over all lines of it."""
    lines = [value.decode("latin-1") for key, value in headers if key == name]
    return [part.strip() for line in lines for part in line.split(",")]


def _forwarded_for(headers: _Headers) -> list[str]:
    return _values(headers, _FORWARDED_FOR)


def _forwarded(headers: _Headers) -> list[str]:
    """Return the `for` of each element of RFC 7239.

    No address has a comma or semicolon in it, so quotes need not be understood: those that a
    client leaves open cannot swallow what the proxy appends.
    """
    return [_parameter(element, "for") for element in _values(headers, _FORWARDED)]


def _parameter(element: str, name: str) -> str:
    for pair in element.split(";"):
        key, _, value = pair.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"')
    return ""


@lru_cache(maxsize=1024)
def _parse(node: str) -> Address | None:
    """Parse an address, which may have a port: `192.0.2.1:80`, `[2001:db8::1]:80`."""
    if len(node) > _LONGEST:
        return None
    if node.startswith("["):
        node = node[1:].partition("]")[0]
    elif node.count(":") == 1:
        node = node.partition(":")[0]
    try:
        address = ip_address(node)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _scheme_in(headers: _Headers) -> str:
    """Return the scheme that the nearest proxy was asked by; "": it does not say."""
    told = _values(headers, _PROTO)[-1:] or [
        _parameter(element, "proto") for element in _values(headers, _FORWARDED)[-1:]
    ]
    return told[0] if told and told[0] in _SCHEMES else ""
