"""`rota login` and `rota logout`: sessions of people at a terminal."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from cyclopts import Parameter

from rota.cli.options import REMOTE, Remote
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.sdk.client import TIMEOUT_SECONDS, Client, pause
from rota.sdk.credentials import (
    credentials_path,
    drop_credential,
    read_credentials,
    save_credential,
)
from rota.sdk.errors import RotaApiError, Unreachable
from rota.sdk.exchange import Reply, Request, not_rota, refuse_error
from rota.sdk.server import Server, resolve
from rota.sdk.transport import Transport

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_SLOWER_SECONDS = 5
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def login(
    *,
    no_browser: Annotated[bool, Parameter(help="Do not open a browser, only say where.")] = False,
    remote: Remote = REMOTE,
) -> None:
    """Log in to a server as yourself, with a browser that may be on any machine.

    Shows a code, and the page of the server where you let this terminal in. The session is kept in
    ~/.config/rota/credentials.json for this server only; it lasts 12 hours after its latest use,
    and 30 days at most. ROTA_TOKEN and other tokens of the settings go first.
    """
    terminal = remote.terminal()
    server = _server(remote)
    transport = Transport(server, TIMEOUT_SECONDS)
    try:
        waiting = _begin(transport)
        _tell(terminal, waiting, opens_browser=not no_browser)
        token = _wait(transport, waiting)
    finally:
        transport.close()
    save_credential(server.url, token)
    with Client(server.url, token) as client:
        name = client.whoami().name
    terminal.tell(inert(f"logged in to {server.url} as {name}"))


def logout(*, remote: Remote = REMOTE) -> None:
    """End the session that `rota login` opened with a server, and forget it here."""
    terminal = remote.terminal()
    server = _server(remote)
    token = read_credentials().get(server.url)
    if token is None:
        raise CommandFailed(
            f"nobody is logged in to {server.url} here",
            code=Exit.NOT_FOUND,
            hint=f"{credentials_path()} has the sessions of rota login",
        )
    try:
        with Client(server.url, token) as client:
            client.logout()
    except RotaApiError as error:
        if isinstance(error, Unreachable) or error.status != 401:
            terminal.tell(inert(f"the server did not end the session: {error.message}"))
    drop_credential(server.url)
    terminal.tell(inert(f"logged out of {server.url}"))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Answer of the server to a terminal that wants to be let in."""

    device: str
    code: str
    page: str
    page_with_code: str
    seconds: float
    interval: float


def _server(remote: Remote) -> Server:
    """Return the server to log in to, without any token."""
    found = resolve(remote.url)
    if found.url is None:
        raise CommandFailed(
            "no Rota server is known here",
            code=Exit.UNREACHABLE,
            hint="name it: rota login --url https://rota.example.org",
        )
    authorities = found.authorities.text if found.authorities else None
    return Server(found.url.text, None, authorities)


def _begin(transport: Transport) -> _Waiting:
    reply = _post(transport, "/auth/device", {"host": socket.gethostname()})
    refuse_error(reply)
    told = _document(reply)
    try:
        page = str(told["verification_uri"])
        return _Waiting(
            device=str(told["device_code"]),
            code=str(told["user_code"]),
            page=page,
            page_with_code=str(told.get("verification_uri_complete", page)),
            seconds=float(told["expires_in"]),
            interval=float(told.get("interval", _SLOWER_SECONDS)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise not_rota(reply) from error


def _tell(terminal: Terminal, waiting: _Waiting, *, opens_browser: bool) -> None:
    terminal.tell(inert(f"Open {waiting.page} and enter the code"))
    terminal.tell(inert(f"  {waiting.code}"))
    has_screen = any(os.environ.get(name) for name in _SCREENS)
    is_page = waiting.page_with_code.startswith(("https://", "http://"))
    if opens_browser and has_screen and is_page and terminal.has_person:
        import webbrowser  # few have a screen where they type this

        webbrowser.open(waiting.page_with_code)
    terminal.tell("Waiting …")
    sys.stderr.flush()


def _wait(transport: Transport, waiting: _Waiting) -> str:
    """Poll until somebody has decided; return the token."""
    interval, left = waiting.interval, waiting.seconds
    form = {"grant_type": _GRANT, "device_code": waiting.device}
    while left > 0:
        pause(interval)
        left -= interval
        try:
            reply = _post(transport, "/auth/device/token", form)
        except Unreachable:  # it may be back before the code expires
            continue
        told = _document(reply)
        match told.get("error"):
            case None:
                return _token(reply, told)
            case "authorization_pending":
                pass
            case "slow_down":
                interval += _SLOWER_SECONDS
            case "access_denied":
                raise CommandFailed("you refused this terminal", code=Exit.DENIED)
            case "expired_token":
                break
            case _:
                raise not_rota(reply)
    raise CommandFailed(
        "nobody let this terminal in in time", code=Exit.DENIED, hint="try again: rota login"
    )


def _token(reply: Reply, told: dict[str, Any]) -> str:
    refuse_error(reply)
    if not isinstance(token := told.get("access_token"), str):
        raise not_rota(reply)
    return token


def _post(transport: Transport, path: str, form: dict[str, str]) -> Reply:
    body = urlencode(form).encode()
    return transport.exchange(Request("POST", path, _FORM, body, is_repeatable=False))


def _document(reply: Reply) -> dict[str, Any]:
    try:
        told = json.loads(reply.body)
    except ValueError as error:
        raise not_rota(reply) from error
    if not isinstance(told, dict):
        raise not_rota(reply)
    return told
