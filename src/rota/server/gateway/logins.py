"""Routes by which people log in and out, and let terminals in.

They lie outside of the API: browsers come here by links, forms and redirects, the provider by its
back channel, terminals as RFC 8628 has it. A form carries a token that only pages of this session
have, in place of the header that changes with a cookie need elsewhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from rota.domain.credentials import digest, shown_code
from rota.domain.errors import Denied, Invalid, NotFound, RotaError
from rota.domain.identity import MAX_TOKEN
from rota.operations import devices, logins
from rota.operations.logins import ATTEMPT_LIFETIME, TERMINAL_LIFETIME, Return
from rota.operations.tokens import Caller, log_out
from rota.operations.wrong_secrets import WrongSecrets, network_of
from rota.ports.logins import DeviceGrant, Polled
from rota.server.gateway import html
from rota.server.gateway.auth import (
    API,
    Credential,
    Tokens,
    address_of,
)
from rota.server.gateway.parameters import (
    GatewaySettings,
    Router,
    Settings,
    UsedEngine,
    open_router,
)
from rota.server.gateway.problems import status_of
from rota.server.gateway.tokens import drop_cookie, open_session, set_cookie

LOGIN, CALLBACK, BACKCHANNEL = "/auth/login", "/auth/callback", "/auth/backchannel"
DEVICE, DEVICE_TOKEN = "/auth/device", "/auth/device/token"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
LOGINS_BEGUN = 60  # by one address in a minute; as many terminals may begin to wait
CODES_TYPED = 10  # wrong ones, by one session in a minute
_TOO_MANY_CODES = "too many wrong codes"
_MAX_TEXT = 4_000
_USED = "A login link works once, within ten minutes: `rota login-link` makes another"

router = open_router("logins")
# Providers add to what they send back what they like.
returning_router = Router("logins", route_class=APIRoute)

Text = Annotated[str, Query(max_length=_MAX_TEXT)]


def begun_logins() -> WrongSecrets:
    return WrongSecrets(LOGINS_BEGUN, timedelta(minutes=1))


def typed_codes() -> WrongSecrets:
    return WrongSecrets(CODES_TYPED, timedelta(minutes=1))


# --- pages


@router.get(html.STYLE_PATH, include_in_schema=False)
async def show_style() -> Response:
    kept = {"Cache-Control": "public, max-age=3600"}
    return Response(html.STYLE, media_type="text/css", headers=kept)


@router.get("/", include_in_schema=False)
async def show_start(request: Request, settings: Settings, engine: UsedEngine) -> HTMLResponse:
    """Greet a person who is logged in; tell a stranger what this is, and how to log in."""
    caller, prefix = _caller(request), settings.path_to("")
    if caller is None:
        has_provider = engine.logins.provider is not None
        return HTMLResponse(html.front_page(prefix, has_provider=has_provider))
    token = _form_token(request)
    docs = f"{API}/docs"
    return HTMLResponse(html.start_page(settings.version, caller.name, token, prefix, docs))


@router.get("/login", include_in_schema=False)
async def show_login(
    request: Request,
    settings: Settings,
    engine: UsedEngine,
    token: Annotated[str, Query(max_length=512)] = "",
    next: Text = "/",  # noqa: A002 (the name in the address)
) -> Response:
    """Show how to log in, or follow the one-time link, which is taken here and nowhere else."""
    prefix = settings.path_to("")
    if not token:
        has_provider = engine.logins.provider is not None
        return HTMLResponse(html.login_page(prefix, next, has_provider=has_provider))
    try:
        secret, _ = await open_session(request, token, takes_tokens=False)
    except RotaError as error:
        return _refusal(error, settings, _USED)
    response = RedirectResponse(settings.path_to("/"), status_code=303)
    set_cookie(response, secret, settings, engine.logins.lifetime)
    return response


@router.get("/logged-out", include_in_schema=False)
async def show_logged_out(settings: Settings, engine: UsedEngine) -> HTMLResponse:
    has_provider = engine.logins.provider is not None
    return HTMLResponse(html.logged_out_page(settings.path_to(""), has_provider=has_provider))


@router.post("/logout", include_in_schema=False)
async def log_out_here(
    request: Request, settings: Settings, engine: UsedEngine, trusted: Tokens
) -> Response:
    """End the session of the cookie, and lead to where the provider's own is ended."""
    prefix = settings.path_to("")
    caller, credential = _caller(request), _credential(request)
    elsewhere = ""
    if caller is not None:
        _check_form(request, await _form(request))
        elsewhere = await end_browser_session(request, settings)
        trusted.forget()
    has_provider = engine.logins.provider is not None
    page = html.logged_out_page(prefix, elsewhere=elsewhere, has_provider=has_provider)
    response = HTMLResponse(page)
    # A form of another site comes without the cookie, which this answer would delete all the same.
    if credential.secret:
        drop_cookie(response, settings)
    return response


async def end_browser_session(request: Request, settings: GatewaySettings) -> str:
    """End the session of a request; return where to go to end that of the provider, or ""."""
    engine, caller = request.app.state.engine, request.state.caller
    return_to = f"{settings.base_url}/logged-out"
    address = await logins.logout_address(engine, caller.token_id, return_to)
    await log_out(engine, caller)
    return address


# --- login with a provider


@router.get(LOGIN, include_in_schema=False)
async def begin_login(
    request: Request,
    settings: Settings,
    engine: UsedEngine,
    next: Text = "/",  # noqa: A002 (the name in the address)
) -> Response:
    """Send the browser to the provider."""
    try:
        _refuse_embedded(request)
        _count_begun(request, "logins")
        kept = request.cookies.get(_attempt_cookie(settings), "")
        begun = await logins.begin(engine, next, _return_to(settings), kept)
    except RotaError as error:
        return _refusal(error, settings)
    response = RedirectResponse(begun.address, status_code=303)
    response.set_cookie(
        _attempt_cookie(settings),
        begun.browser,
        max_age=int(ATTEMPT_LIFETIME.total_seconds()),
        path="/",
        secure=settings.secure_cookies,
        httponly=True,
        samesite="lax",  # it has to come along when the provider sends the browser back
    )
    return response


@returning_router.get(CALLBACK, include_in_schema=False)
async def finish_login(
    request: Request,
    settings: Settings,
    engine: UsedEngine,
    state: Text = "",
    code: Text = "",
    iss: Annotated[str | None, Query(max_length=_MAX_TEXT)] = None,
    error: Text = "",
    error_description: Text = "",
) -> Response:
    """Open a session for somebody who is back from the provider."""
    browser = request.cookies.get(_attempt_cookie(settings), "")
    back = Return(state, browser, code, iss, error, error_description)
    try:
        opened = await logins.finish(engine, back, _return_to(settings))
    except RotaError as refusal:
        return _refusal(refusal, settings)
    response = RedirectResponse(settings.path_to(opened.next), status_code=303)
    set_cookie(response, opened.secret, settings, engine.logins.lifetime)
    return response


@router.post(BACKCHANNEL, include_in_schema=False)
async def end_by_provider(request: Request, engine: UsedEngine, trusted: Tokens) -> Response:
    """End the sessions that a logout token of the provider names."""
    token = (await _form(request)).get("logout_token", "")
    if not token or len(token) > MAX_TOKEN:
        return JSONResponse({"error": "invalid_request"}, 400)
    try:
        await logins.end_from_provider(engine, token)
    except Denied as error:
        said = {"error": "invalid_request", "error_description": error.message}
        return JSONResponse(said, 400)
    trusted.forget()
    return Response(status_code=200)


def _return_to(settings: GatewaySettings) -> str:
    """Return where the provider sends people back to: never what the browser calls this host."""
    return settings.base_url + CALLBACK


def _attempt_cookie(settings: GatewaySettings) -> str:
    return "__Host-rota_login" if settings.secure_cookies else "rota_login"


# --- terminals


@router.post(DEVICE, include_in_schema=False)
async def begin_device(request: Request, settings: Settings, engine: UsedEngine) -> Response:
    """Give a terminal a code to show (RFC 8628, 3.1)."""
    _refuse_embedded(request)
    _count_begun(request, "terminals")
    form = await _form(request)
    asked = await devices.begin(engine, form.get("host", ""), address_of(request))
    page = f"{settings.base_url}/device"
    code = shown_code(asked.code)
    return JSONResponse(
        {
            "device_code": asked.device,
            "user_code": code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?{urlencode({'code': code})}",
            "expires_in": int(devices.LIFETIME.total_seconds()),
            "interval": int(devices.EVERY.total_seconds()),
        }
    )


@router.post(DEVICE_TOKEN, include_in_schema=False)
async def poll_device(request: Request, engine: UsedEngine) -> Response:
    """Tell a terminal whether it was let in (RFC 8628, 3.4)."""
    form = await _form(request)
    if form.get("grant_type") != DEVICE_GRANT:
        return JSONResponse({"error": "unsupported_grant_type"}, 400)
    told, secret = await devices.poll(engine, form.get("device_code", ""))
    if told is not Polled.GRANTED:
        return JSONResponse({"error": told.value}, 400)
    lifetime = int(TERMINAL_LIFETIME.total_seconds())
    return JSONResponse({"access_token": secret, "token_type": "Bearer", "expires_in": lifetime})


@router.get("/device", include_in_schema=False)
async def show_device(
    request: Request, settings: Settings, engine: UsedEngine, code: Text = ""
) -> Response:
    """Ask for a code, or with one whether the person knows the terminal that shows it."""
    caller, prefix = _caller(request), settings.path_to("")
    if caller is None:
        here = f"/device?{urlencode({'code': code})}" if code else "/device"
        page = "/login" if engine.logins.provider is None else LOGIN
        address = f"{settings.path_to(page)}?{urlencode({'next': here})}"
        return RedirectResponse(address, status_code=303)
    if not code:
        return HTMLResponse(html.code_page(prefix))
    try:
        grant = await _waiting(request, caller, code)
    except RotaError as error:
        why = f"{error.message}. {error.hint}"
        return HTMLResponse(html.code_page(prefix, why), status_of(error))
    return HTMLResponse(html.consent_page(prefix, _form_token(request), grant, caller.name))


@router.post("/device", include_in_schema=False)
async def decide_device(request: Request, settings: Settings, engine: UsedEngine) -> Response:
    """Let a terminal in with the rights of this session, or refuse it."""
    caller, prefix = _caller(request), settings.path_to("")
    if caller is None:
        return RedirectResponse(settings.path_to("/device"), status_code=303)
    form = await _form(request)
    _check_form(request, form)
    is_approved = form.get("answer") == "yes"
    try:
        await _waiting(request, caller, form.get("code", ""))
        code = form.get("code", "")
        await devices.decide(engine, code, caller.token_id, is_approved=is_approved)
    except RotaError as error:
        why = f"{error.message}. {error.hint}"
        return HTMLResponse(html.code_page(prefix, why), status_of(error))
    return HTMLResponse(html.decided_page(prefix, is_approved=is_approved))


async def _waiting(request: Request, caller: Caller, code: str) -> DeviceGrant:
    """Return the terminal of a code; wrong ones are counted, so that nobody finds one by trying."""
    typed: WrongSecrets = request.app.state.typed_codes
    typed.require_few(caller.token_id, _TOO_MANY_CODES)  # for a right one as well
    try:
        return await devices.find(request.app.state.engine, code)
    except NotFound:
        typed.count(caller.token_id, _TOO_MANY_CODES)
        raise


# --- requests


def _refuse_embedded(request: Request) -> None:
    """Raise `Denied` for what a browser asks for on behalf of a page, without showing it.

    A page of another site could else use up what all who come from an address may begin.
    """
    dest = request.headers.get("sec-fetch-dest", "document")
    if dest != "document":
        raise Denied(
            "a login begins in a window of its own", code="forged", hint="open this address itself"
        )


def _count_begun(request: Request, what: str) -> None:
    """Bound what a stranger can make the store keep."""
    begun: WrongSecrets = request.app.state.begun_logins
    key = f"{what} from {network_of(address_of(request))}"
    begun.count(key, f"too many {what} begin at this address")


def _caller(request: Request) -> Caller | None:
    caller: Caller | None = request.state.caller
    return caller


def _credential(request: Request) -> Credential:
    credential: Credential = request.state.credential
    return credential


def _form_token(request: Request) -> str:
    """Return what forms of this session's pages carry; no other site can read it."""
    return digest(f"form {_credential(request).secret}")[:32]


def _check_form(request: Request, form: Mapping[str, str]) -> None:
    """Raise `Denied` for a form that no page of this session has sent."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    given = form.get("form", "")
    is_ours = hmac.compare_digest(given.encode(), _form_token(request).encode())
    if not is_ours or site not in ("same-origin", "none"):
        raise Denied("this form was not sent by a page of Rota", code="forged", hint="go back")


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of one that is there twice, the first counts."""
    body = await request.body()
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50)
    except ValueError as error:
        raise Invalid("the form cannot be read", code="malformed") from error
    return dict(reversed(pairs))


def _refusal(error: RotaError, settings: GatewaySettings, hint: str = "") -> HTMLResponse:
    page = html.refusal_page(settings.path_to(""), error.message, hint or error.hint)
    return HTMLResponse(page, status_of(error))
