"""Tokens of an identity provider: which of them are believed, and whom they speak of.

The signature is the adapter's business; what is here decides about headers before it is checked,
and about claims after it was. Whatever is wrong is a `Denied` with the reason: for the person who
wants to log in, and for the admin who set it up.

    read_header → (adapter: key and signature) → read_object → person_of_login
                                                             → person_of_access_token
                                                             → ended_by_logout
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rota.domain.errors import Denied, quoted

MAX_TOKEN = 8 * 1024  # characters of one that a request shows
AT_JWT = "at+jwt"  # RFC 9068
JWT = "jwt"
_LOGOUT_JWT = "logout+jwt"
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
# Which keys an algorithm takes. What is missing here (`none`, HS256 with a public key as its
# secret) is refused before any key is looked for.
KEYS_OF: Mapping[str, str] = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
LEEWAY = timedelta(seconds=60)  # by how much the provider's clock may be off
_LOGOUT_LIFETIME = timedelta(minutes=5)  # of a logout token that does not say when it expires
_LEAST_MODULUS = 2048 // 6  # base64 characters of a modulus of 2,048 bits
_END_OF_TIME = 2.5e11  # seconds: in the year 9892
_MAX_SUBJECT = 255
_MAX_NAME = 256  # characters of a group or title
_MAX_GROUPS = 1_000
_BY_DOMAIN, _BY_EMAIL = "hd:", "email:"  # begin groups that Rota makes where a provider has none

_MAX_HANDLE = 100
_NOT_IN_HANDLES = re.compile(r"[^A-Za-z0-9._-]+")
_OURS = "rota"  # begins what our own commands are called in the history: `rota up`
# They mean something else already, or act in Rota's own name.
_RESERVED = frozenset(
    {
        *("me", "local", _OURS),
        *("system", "scheduler", "reaper", "provider", "external", "migration"),
        "oidc_admin_groups",
    }
)

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """Rules by which tokens of one provider are believed."""

    issuer: str  # exactly as the provider writes it
    client_id: str
    audience: str = ""  # of access tokens for Rota; "": none are taken
    groups_claim: str = ""  # JSON pointer to the names of groups; "": the provider tells none
    access_token_typ: str = AT_JWT  # or `jwt`, for which more rules hold
    client_ids: frozenset[str] = frozenset()  # whose access tokens are taken; empty: anybody's


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a token, about its signature; where to find keys (jku, jwk, x5u) is not read."""

    algorithm: str
    key: str = ""  # kid; "": it does not say
    kind: str = ""  # typ, in lower case and without `application/`; "": it does not say


@dataclass(frozen=True, slots=True)
class Person:
    """A user as the provider describes them."""

    issuer: str
    subject: str
    username: str  # what a handle is made of
    title: str = ""
    email: str = ""  # verified by the provider, in lower case; "": none is
    sid: str = ""  # what the provider calls the session; "": it does not tell
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndedSession:
    """Which sessions the provider has ended; one of `sid` and `subject` may be empty."""

    issuer: str
    sid: str
    subject: str
    at: datetime  # later ones are others: a token that is sent again does not end them


def refused(why: str, hint: str = "") -> Denied:
    """Return the error of a login that the provider allowed and Rota does not."""
    return Denied(why, code="login_refused", hint=hint)


# --- before the signature


def read_header(token: str) -> Header:
    """Read the header of a signed token; raise `Denied` unless its signature can be checked."""
    if len(token) > MAX_TOKEN * 4 or token.count(".") != 2:
        raise refused("this is not a signed token")
    header = read_object(_decoded(token.partition(".")[0]))
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in KEYS_OF:
        raise refused("the token is not signed in a way that is trusted")
    if "crit" in header:
        raise refused("the token asks for rules that are not known")
    return Header(algorithm, _text(header, "kid"), _kind(_text(header, "typ")))


def fits(key: Claims, header: Header) -> bool:
    """Return whether a published key may have signed a token with this header."""
    return (
        key.get("kty") == KEYS_OF[header.algorithm]
        and key.get("use", "sig") == "sig"
        and key.get("alg", header.algorithm) == header.algorithm
        and (not header.key or key.get("kid") == header.key)
        and (key.get("kty") != "RSA" or len(_text(key, "n")) >= _LEAST_MODULUS)
    )


def read_object(text: bytes) -> dict[str, Any]:
    """Read a JSON object; raise `Denied` if it is none, or could be read in two ways."""
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise refused("the provider's answer cannot be read") from error
    if not isinstance(found, dict):
        raise refused("the provider's answer cannot be read")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise refused("this is not a signed token") from error


def _kind(typ: str) -> str:
    return typ.lower().removeprefix("application/")


# --- after it


def person_of_login(
    header: Header, claims: Claims, rules: ProviderRules, *, now: datetime, nonce: str | None
) -> Person:
    """Return who logged in, by their ID token; `nonce` None: it comes with a refresh.

    Raise `Denied` if the token is another kind, another's, out of time, or of another login.
    """
    if header.kind not in ("", JWT):
        raise refused("the provider sent another token instead of an ID token")
    _check_issuer(claims, rules)
    _check_client(claims, rules.client_id)
    _check_times(claims, now)
    if nonce is not None and not hmac.compare_digest(
        _text(claims, "nonce").encode(), nonce.encode()
    ):
        raise refused("the provider's answer belongs to another login", "log in again")
    return _person(claims, rules)


def person_of_access_token(
    header: Header, claims: Claims, rules: ProviderRules, *, now: datetime
) -> Person:
    """Return whom an access token speaks for; raise `Denied` unless it was made for Rota.

    An ID token is not taken: it says who somebody is, to one client, and is no right to call.
    """
    if not rules.audience:
        raise refused("access tokens of the provider are not taken here", "oidc_audience allows it")
    _check_issuer(claims, rules)
    if rules.audience not in _audiences(claims):
        raise refused("the access token is for another audience")
    _check_times(claims, now)
    if rules.access_token_typ == JWT:
        _check_plain_jwt(header, claims, rules)
    else:
        _check_at_jwt(header, claims, rules)
    return _person(claims, rules)


def _check_at_jwt(header: Header, claims: Claims, rules: ProviderRules) -> None:
    if header.kind != AT_JWT:
        raise refused(
            f"the token is of type {quoted(header.kind or 'none')}, not {AT_JWT}",
            "if the provider writes JWT into access tokens, set oidc_access_token_typ to jwt",
        )
    if not (_text(claims, "client_id") and _text(claims, "jti")):
        raise refused("the access token does not say who asked for it")
    _check_asker(_text(claims, "client_id"), rules)


def _check_plain_jwt(header: Header, claims: Claims, rules: ProviderRules) -> None:
    """Tell access tokens from ID tokens by what else they say, as both are called JWT."""
    if header.kind not in (JWT, AT_JWT) or "nonce" in claims or "at_hash" in claims:
        raise refused("this is not an access token")
    if rules.audience == rules.client_id:
        raise refused("the audience of access tokens is that of ID tokens, too")
    asker = _text(claims, "azp") or _text(claims, "client_id")
    if not asker or asker not in rules.client_ids:
        raise refused("the client that asked for the access token is not among oidc_client_ids")


def _check_asker(asker: str, rules: ProviderRules) -> None:
    if rules.client_ids and asker not in rules.client_ids:
        raise refused("the client that asked for the access token is not among oidc_client_ids")


def ended_by_logout(
    header: Header, claims: Claims, rules: ProviderRules, *, now: datetime
) -> EndedSession:
    """Return the sessions that a logout token of the provider ends (back-channel logout)."""
    if header.kind not in ("", JWT, _LOGOUT_JWT):
        raise refused("this is not a logout token")
    _check_issuer(claims, rules)
    if rules.client_id not in _audiences(claims):
        raise refused("the logout token is for another client")
    issued = _instant(claims, "iat", is_needed=True)
    expires = {"exp": issued + _LOGOUT_LIFETIME.total_seconds(), **claims}
    _check_times(expires, now)
    events = claims.get("events")
    is_logout = isinstance(events, dict) and isinstance(events.get(_LOGOUT_EVENT), dict)
    if not is_logout or "nonce" in claims or not _text(claims, "jti"):
        raise refused("this is not a logout token")
    sid, subject = _text(claims, "sid"), _text(claims, "sub")
    if not (sid or subject):
        raise refused("the logout token names no session and nobody")
    at = datetime.fromtimestamp(max(issued, 0.0), UTC) + LEEWAY
    return EndedSession(rules.issuer, sid, subject, at)


def _check_issuer(claims: Claims, rules: ProviderRules) -> None:
    if claims.get("iss") != rules.issuer:
        raise refused("the token is of another issuer", "oidc_issuer is what its `iss` must be")


def _check_client(claims: Claims, client_id: str) -> None:
    audiences = _audiences(claims)
    if client_id not in audiences:
        raise refused("the ID token is for another client", "is oidc_client_id right?")
    asker = claims.get("azp", client_id if len(audiences) == 1 else None)
    if asker != client_id:
        raise refused("the ID token was made for another client that shares it")


def _audiences(claims: Claims) -> list[str]:
    named = claims.get("aud")
    audiences = named if isinstance(named, list) else [named]
    return [each for each in audiences if isinstance(each, str) and each]


def _check_times(claims: Claims, now: datetime) -> None:
    leeway, at = LEEWAY.total_seconds(), now.timestamp()
    if _instant(claims, "exp", is_needed=True) <= at - leeway:
        raise refused("the token has expired")
    for name in ("iat", "nbf"):
        if _instant(claims, name, is_needed=name == "iat") > at + leeway:
            raise refused(
                "the token is not valid yet", "are the clocks of Rota and the provider right?"
            )


def _instant(claims: Claims, name: str, *, is_needed: bool) -> float:
    """Return seconds since 1970; of one that is missing and need not be there, 0."""
    value = claims.get(name, None if is_needed else 0)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < _END_OF_TIME:
        raise refused(f"the token does not say its {name}")
    return float(value)


def _person(claims: Claims, rules: ProviderRules) -> Person:
    # ASCII, as OpenID Connect has it: Rota itself calls some principals by what cannot be a `sub`.
    subject = _text(claims, "sub")
    if not subject or len(subject) > _MAX_SUBJECT or not subject.isascii():
        raise refused("the token does not say whom it is about")
    local_part = _text(claims, "email").partition("@")[0]
    return Person(
        issuer=rules.issuer,
        subject=subject,
        username=_text(claims, "preferred_username") or local_part or subject,
        title=_text(claims, "name")[:_MAX_NAME],
        email=_verified_email(claims),
        sid=_text(claims, "sid")[:_MAX_SUBJECT],
        groups=groups_in(claims, rules),
    )


def _verified_email(claims: Claims) -> str:
    """Return the address that the provider has verified, as roles are bound to it; "": none."""
    email = _text(claims, "email").lower() if claims.get("email_verified") is True else ""
    return email if len(email) <= _MAX_NAME else ""  # cut, it could be another's


def _text(claims: Claims, name: str) -> str:
    """Return a claim that is a text; "": it is missing, or something else.

    What cannot be printed cannot be stored everywhere either: NUL, half a character.
    """
    value = claims.get(name)
    return value if isinstance(value, str) and value.isprintable() else ""


# --- groups


def groups_in(claims: Claims, rules: ProviderRules) -> tuple[str, ...]:
    """Return the groups of a token's user.

    Of a provider that has no groups, its own statements about the user serve as such: the domain
    that it hosts (`hd:example.org`) and a verified address (`email:ann@example.org`). The end of an
    address is none: who has it need not belong to whom the domain belongs.
    """
    if not rules.groups_claim:
        return _groups_made(claims)
    _refuse_overage(claims, rules.groups_claim)
    found = at_pointer(claims, rules.groups_claim)
    names = [found] if isinstance(found, str) else found or []
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise refused(
            f"the claim {quoted(rules.groups_claim)} is not a list of names",
            "oidc_groups_claim is a JSON pointer to one, such as /groups",
        )
    if len(names) > _MAX_GROUPS:
        raise refused(
            f"the token has more than {_MAX_GROUPS:,} groups",
            "let the provider send only those that have a role in Rota",
        )
    fit = (each for each in names if 0 < len(each) <= _MAX_NAME and each.isprintable())
    return tuple(dict.fromkeys(fit))


def _groups_made(claims: Claims) -> tuple[str, ...]:
    made = []
    if domain := _text(claims, "hd"):
        made.append(f"{_BY_DOMAIN}{domain.lower()}")
    if email := _verified_email(claims):
        made.append(f"{_BY_EMAIL}{email}")
    return tuple(each for each in made if len(each) <= _MAX_NAME)


def _refuse_overage(claims: Claims, pointer: str) -> None:
    """Refuse a token of Entra that leaves out the groups because they are too many.

    To go on without would take roles away from those who are in most groups.
    """
    left_out = claims.get("_claim_names")
    name = _steps(pointer)[0]
    is_left_out = isinstance(left_out, dict) and name in left_out
    if is_left_out or (name == "groups" and claims.get("hasgroups") is True):
        raise refused(
            "the provider left out the groups, because you are in too many",
            "an admin can use the roles claim instead: app roles, and oidc_groups_claim /roles",
        )


def at_pointer(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer (RFC 6901) leads to; None: nothing is there."""
    found = document
    for step in _steps(pointer):
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


# --- names


def is_reserved(handle: str) -> bool:
    """Return whether a handle would read as Rota itself, or as something else."""
    name = handle.lower()
    return name in _RESERVED or name.partition(" ")[0] == _OURS


def handle_from(*names: str) -> str:
    """Return a handle made of the first of these names that has something to make one of.

    In lower case: people choose their names elsewhere, and `Ann` must not look like `ann`.
    """
    for name in names:
        cleaned = _NOT_IN_HANDLES.sub("-", name).strip("-._")[:_MAX_HANDLE]
        if cleaned:
            return cleaned.lower()
    return "somebody"


def handles_like(wished: str) -> Iterator[str]:
    """Yield handles for somebody new, the best first, without an end: others may have them."""
    if not is_reserved(wished):
        yield wished
    for number in count(2):
        yield f"{wished}-{number}"


def wished_handle(person: Person) -> str:
    """Return the handle that a person gets unless it is somebody else's."""
    return handle_from(person.username.partition("@")[0], "user")


# --- addresses


def is_near(address: str) -> bool:
    """Return whether an address is on this machine, where nobody listens in between."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def checked_next(path: str) -> str:
    """Return the path where a person goes on after a login; "/" if it could lead elsewhere.

    Browsers take `//host`, `/\\host` and `/<tab>/host` for addresses of other hosts.
    """
    begins_once = path.startswith("/") and not path.startswith("//")
    is_plain = path.isascii() and path.isprintable() and not set(path) & {"\\", " "}
    return path if begins_once and is_plain and len(path) <= 2_000 else "/"
