"""Addresses: which URLs are read at all, and which machines a request may reach.

For all that Rota sends out on behalf of a project: jobs of type `http`, code from git, images, and
what is told to others. An address that a project names must not become a way to the networks that
only the machine can see: the databases beside it, its own services, the metadata of its cloud.

    parse_target → (adapter: look the name up) → check_addresses → (adapter: connect to one of them)

A URL is either understood without doubt or refused: what two programs could read in two ways is
the gap that attackers use. What is not refused here is what is connected to, nothing is parsed
again. The addresses of an installation's own settings are trusted, and not judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urljoin

from rota.domain.errors import Denied, Invalid, listed, quoted, shown

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

WEB = ("https", "http")
_PORTS: Mapping[str, int] = {"https": 443, "http": 80, "ssh": 22}
_WITH_USER = frozenset({"ssh"})  # schemes whose addresses name a user, never a password
MAX_URL = 8 * 1024
_MAX_HOST = 253
_GREATEST_PORT = 65_535

# RFC 3986, without its leniences: an authority ends at the first of / ? #, and a backslash, which
# browsers take for a slash, is not let in anywhere.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
    r"(?P<query>\?[^#]*)?(?P<fragment>#.*)?"
)
_AUTHORITY = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)  # how resolvers read them in IPv4 addresses
_IN_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?|\[\]-]|%[0-9A-Fa-f]{2})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Target:
    """Place that a request goes to, in one normal form."""

    scheme: str
    host: str  # ASCII, in lower case, without a dot at its end; IPv6 without brackets
    port: int
    path: str = "/"  # with the query
    user: str = ""  # ssh only

    @property
    def literal(self) -> Address | None:
        """Return the address, where one is written instead of a name."""
        return _literal(self.host)

    @property
    def authority(self) -> str:
        """Return host and port, as a `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return what credentials are for: scheme, host and port."""
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"{self.scheme}://{user}{self.authority}{self.path}"

    @property
    def shown(self) -> str:
        """Return it for messages: a query may have secrets."""
        path, question, _ = self.path.partition("?")
        return f"{self.origin}{path}{'?…' if question else ''}"


# --- URLs


def parse_target(url: str, schemes: Sequence[str] = WEB) -> Target:
    """Parse a URL; raise `Invalid` for everything that could be read in two ways."""
    if len(url) > MAX_URL:
        raise _bad(url, f"it is longer than {MAX_URL} characters")
    if any(not character.isprintable() or character.isspace() for character in url):
        raise _bad(url, "it has blanks or control characters")
    if "\\" in url:
        raise _bad(url, "it has a backslash")
    found = _URL.fullmatch(url)
    if found is None:
        raise _bad(url, f"it does not begin with {_beginnings(schemes)}")
    scheme = found["scheme"].lower()
    if scheme not in schemes:
        raise _bad(url, f"{scheme} is not {listed(schemes)}")
    user, host, port = _parse_authority(url, scheme, found["authority"])
    path = (found["path"] or "/") + (found["query"] or "")
    if not _IN_PATH.fullmatch(path):
        raise _bad(url, "its path or query has characters that must be written as %XX")
    return Target(scheme, host, port, path, user)


def redirected(target: Target, location: str) -> Target:
    """Return where an answer of this target sends on to; raise `Denied` if nothing may go there."""
    try:
        if not location or not location.isascii() or not location.isprintable():
            raise _bad(location, "it cannot be read")
        if "\\" in location:  # which joining would take for a part of a path
            raise _bad(location, "it has a backslash")
        here = f"{target.origin}{target.path}"
        following = parse_target(urljoin(here, location.partition("#")[0]))
    except (Invalid, ValueError) as error:
        message = f"{target.origin} redirects: {error}"
        raise Denied(message, code="redirect_refused") from error
    if target.scheme == "https" and following.scheme != "https":
        raise Denied(
            f"{target.origin} redirects to {following.origin}, which is not https",
            code="redirect_refused",
            hint=f"name {following.origin} itself, if that is meant",
        )
    return following


def parse_origin(text: str, schemes: Sequence[str] = WEB) -> str:
    """Return the origin that a credential is for; a bare host is one of the first of the schemes.

    Raise `Invalid`; also for a path, as nothing is bound to one.
    """
    target = parse_target(text if "://" in text else f"{schemes[0]}://{text}", schemes)
    if target.path != "/":
        raise _bad(text, "a path is not looked at: write scheme, host and port alone")
    return target.origin


def _parse_authority(url: str, scheme: str, authority: str) -> tuple[str, str, int]:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise _bad(url, "its host cannot be read")
    user = found["user"]
    if user is not None:
        if scheme not in _WITH_USER:
            raise _bad(url, "it has a user or password before the host: name them apart")
        if not _USER.fullmatch(user):
            raise _bad(url, "before the @ there must be the name of a user alone")
    port = found["port"]
    if port is None:
        number = _PORTS[scheme]
    elif not _PORT.fullmatch(port) or int(port) > _GREATEST_PORT:
        raise _bad(url, f"{quoted(port)} is not a port")
    else:
        number = int(port)
    return user or "", _parse_host(url, found["host"]), number


def _parse_host(url: str, host: str) -> str:
    if host.startswith("["):
        return _parse_ipv6(url, host[1:-1])
    name = host if host.isascii() else _as_ascii(url, host)
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise _bad(url, f"{quoted(host)} is not the name of a host")
    # Resolvers read 127.1, 0x7f.1, 2130706433 and 0177.0.0.1 as addresses, too.
    if _NUMBER.fullmatch(labels[-1]):
        try:
            is_usual = str(IPv4Address(name)) == name
        except ValueError:
            is_usual = False
        if not is_usual:
            raise _bad(url, f"{quoted(host)} is no address in its usual form, such as 192.0.2.1")
    return name


def _parse_ipv6(url: str, text: str) -> str:
    try:
        address = IPv6Address(text)
    except ValueError:
        raise _bad(url, f"{quoted(text)} is not an IPv6 address") from None
    if address.scope_id is not None:
        raise _bad(url, "an address with a zone (%) belongs to one machine")
    return address.compressed


def _as_ascii(url: str, host: str) -> str:
    """Return an international name as it is looked up (IDNA 2008)."""
    import idna  # here: where sources are fetched there is nothing but Python itself

    try:
        name = idna.encode(host, uts46=True, std3_rules=True).decode("ascii")
    except idna.IDNAError:
        raise _bad(url, f"{quoted(host)} is not the name of a host") from None
    if not any(label.startswith("xn--") for label in name.split(".")):
        # Such as digits in full width: who writes these wants them read differently elsewhere.
        raise _bad(url, f"{quoted(host)} is another way to write {quoted(name)}: write that")
    return name


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _beginnings(schemes: Sequence[str]) -> str:
    return listed(f"{scheme}://" for scheme in schemes)


def _bad(url: str, why: str) -> Invalid:
    return Invalid(f"{shown(_without_user(url))} is no address to go to: {why}", code="bad_address")


def _without_user(url: str) -> str:
    """Hide what stands before an @: it may be a password, wherever the @ is."""
    before, at, after = url.rpartition("@")
    return f"{before.partition('://')[0]}://…@{after}" if at and "://" in before else url


# --- networks

_KINDS: Mapping[str, Sequence[str]] = {
    "this machine itself": ("127.0.0.0/8", "::1/128"),
    "no address of any machine": ("0.0.0.0/8", "::/128"),
    "a private network": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    # Clouds tell their machines' secrets at 169.254.169.254, and Azure also at an address that
    # looks public.
    "the link of this machine": ("169.254.0.0/16", "fe80::/10", "168.63.129.16/32"),
    "behind a carrier's address translation": ("100.64.0.0/10",),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "100::/64", "2001::/23"),
    "a network of documentation": (
        *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    ),
    "a tunnel to another address": ("192.88.99.0/24", "2001::/32", "2002::/16", "64:ff9b:1::/48"),
}
_CLOSED = [(ip_network(text), kind) for kind, texts in _KINDS.items() for text in texts]
# The most exact first: Teredo is a part of what is reserved.
_CLOSED.sort(key=lambda entry: -entry[0].prefixlen)
# What a network namespace of its own has to be kept from. Also 127.0.0.0/8, though it has another
# loopback: what a socket that is bound to a device sends there leaves by that device.
PRIVATE_IPV4 = tuple(
    network
    for network, kind in _CLOSED
    if isinstance(network, IPv4Network) and kind != "a network of documentation"
)
_PUBLIC_IPV6 = IPv6Network("2000::/3")  # all that was ever given out
_TRANSLATED = IPv6Network("64:ff9b::/96")  # IPv4 as machines without IPv4 see it (NAT64)


def why_closed(address: Address, opened: Iterable[Network] = ()) -> str:
    """Return why an address must not be reached, for the end of "it is …"; "": it may be.

    `opened` are the networks that the machine's settings allow. An IPv4 address inside of an IPv6
    one is judged as what it is: the kernel, or the network's translator, connects to that.
    """
    inner = _embedded(address)
    if any(_has(network, address) or _has(network, inner) for network in opened):
        return ""
    kind = next((kind for network, kind in _CLOSED if _has(network, inner)), "")
    if kind:
        return kind
    if isinstance(inner, IPv6Address) and inner not in _PUBLIC_IPV6:
        return "no public address"
    return ""


def check_addresses(
    host: str, addresses: Sequence[Address], opened: Sequence[Network] = ()
) -> None:
    """Raise `Denied` unless all addresses of a host may be reached.

    One that may not spoils them all: whoever answers look-ups would choose among them.
    """
    for address in addresses:
        why = why_closed(address, opened)
        if why:
            raise Denied(
                f"{_named(host, address)} must not be reached: it is {why}",
                code="address_refused",
                hint=f"an admin of the machine may allow it: outgoing_networks = {_whole(address)}",
                facts={"host": host, "address": str(address)},
            )


def _named(host: str, address: Address) -> str:
    return str(address) if host == str(address) else f"{host} ({address})"


def _whole(address: Address) -> str:
    return f"{address}/{address.max_prefixlen}"


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for, if it does."""
    if not isinstance(address, IPv6Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address


def _has(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network
