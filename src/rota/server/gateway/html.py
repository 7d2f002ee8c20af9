"""Pages for people: plain HTML with one style sheet of our own, no scripts, nothing from elsewhere.

Whatever somebody else has written goes through `escape`.
"""

from __future__ import annotations

import re
from html import escape
from urllib.parse import urlencode

from rota.domain.credentials import shown_code
from rota.ports.logins import DeviceGrant

STYLE_PATH = "/style.css"
_CODE, _AS_CODE = re.compile("`([^`]+)`"), r"<code>\1</code>"  # commands in hints
STYLE = """\
:root { color-scheme: light dark; --bg: #FAF9F6; --surface: #FFFFFF; --sunken: #F1EFEA;
  --ink: #1C1B19; --ink-2: #57534C; --line: #DEDAD2; --strong: #8F897F; --accent: #4340C4;
  --on-accent: #FFFFFF; --red: #B3201D; }
@media (prefers-color-scheme: dark) { :root { --bg: #121110; --surface: #1A1918;
  --sunken: #0C0B0B; --ink: #EFECE6; --ink-2: #B8B2A8; --line: #36332F; --strong: #77716A;
  --accent: #A9A8FF; --on-accent: #121110; --red: #FF8A80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/24px "IBM Plex Sans", system-ui, sans-serif; }
header { border-bottom: 1px solid var(--line); background: var(--surface); padding: 10px 24px; }
header a { color: var(--ink); font-weight: 600; text-decoration: none; }
main { max-width: 72ch; margin: 0 auto; padding: 32px 24px 48px; }
main.wide { max-width: none; }
h1 { font-size: 20px; line-height: 28px; font-weight: 600; margin: 0 0 16px; }
p { margin: 0 0 12px; }
a { color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
code, .code { font-family: "IBM Plex Mono", ui-monospace, monospace; font-size: 13px;
  background: var(--sunken); padding: 1px 4px; border-radius: 3px; }
.code { display: inline-block; font-size: 28px; line-height: 40px; letter-spacing: 2px;
  padding: 4px 12px; margin: 0 0 12px; }
.why { border-left: 3px solid var(--red); padding: 4px 0 4px 12px; }
.quiet { color: var(--ink-2); font-size: 13px; line-height: 20px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0 0 16px; }
dt { color: var(--ink-2); } dd { margin: 0; overflow-wrap: anywhere; }
form { margin: 0 0 12px; } label { display: block; margin: 0 0 4px; }
input[type=text] { font: inherit; color: inherit; background: var(--surface); width: 14ch;
  border: 1px solid var(--strong); border-radius: 3px; padding: 6px 8px; letter-spacing: 1px; }
button, .button { font: inherit; display: inline-block; border: 1px solid var(--accent);
  border-radius: 3px; padding: 6px 16px; background: var(--accent); color: var(--on-accent);
  text-decoration: none; cursor: pointer; }
button.second { background: transparent; color: var(--ink); border-color: var(--strong); }
table { border-collapse: collapse; font-size: 13px; line-height: 20px; }
th, td { text-align: left; vertical-align: top; padding: 4px 16px 4px 0;
  border-bottom: 1px solid var(--line); }
"""


def page(title: str, body: str, prefix: str = "", *, wide: bool = False, head: str = "") -> str:
    """Return a whole page; `body` and `head` are HTML, `prefix` is where Rota is on its host."""
    name, root = escape(title), escape(prefix)
    frame = ' class="wide"' if wide else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{name}</title><link rel="stylesheet" href="{root}{STYLE_PATH}">{head}</head>'
        f'<body><header><a href="{root}/">Rota</a></header>'
        f"<main{frame}><h1>{name}</h1>{body}</main></body></html>"
    )


def front_page(prefix: str, *, has_provider: bool) -> str:
    """Say what this is, and how to log in, to whoever comes by."""
    return page(
        "Rota",
        "<p>Rota runs jobs on a schedule, and tells why each one runs, waits or failed.</p>"
        + _ways_in(prefix, "/", has_provider=has_provider)
        + "<p class='quiet'>Programs use the API with a token: "
        "<code>rota token create</code> makes one.</p>",
        prefix,
    )


def start_page(version: str, name: str, form_token: str, prefix: str, docs: str) -> str:
    """Greet somebody who is logged in."""
    return page(
        "Rota is running",
        f"<p>Version {escape(version)}. You are logged in as <b>{escape(name)}</b>. "
        "The web interface is not part of this version.</p>"
        f'<p>The API is described in <a href="{escape(prefix + docs)}">{escape(docs)}</a>.</p>'
        "<p>In a terminal: <code>rota login</code>, <code>rota job list</code>, "
        "<code>rota run list</code>, <code>rota --help</code>.</p>"
        f'<form method="post" action="{escape(prefix)}/logout">{_hidden(form_token)}'
        '<button class="second">Log out</button></form>',
        prefix,
    )


def login_page(prefix: str, next_path: str, *, has_provider: bool) -> str:
    return page("Log in", _ways_in(prefix, next_path, has_provider=has_provider), prefix)


def _ways_in(prefix: str, next_path: str, *, has_provider: bool) -> str:
    if not has_provider:
        return (
            "<p>To log in, open the link that <code>rota login-link</code> prints on the machine "
            "where the server runs.</p>"
        )
    target = escape(f"{prefix}/auth/login?{_query(next_path)}")
    return f'<p><a class="button" href="{target}">Log in</a></p>'


def refusal_page(prefix: str, why: str, what_to_do: str) -> str:
    """Say why somebody is not let in, and what to do about it."""
    hint = f"<p>{_CODE.sub(_AS_CODE, escape(_sentence(what_to_do)))}</p>" if what_to_do else ""
    return page(
        "Not logged in",
        f'<p class="why">{escape(_sentence(why))}</p>{hint}'
        f'<p><a href="{escape(prefix)}/login">Back to the login</a></p>',
        prefix,
    )


def logged_out_page(prefix: str, *, elsewhere: str = "", has_provider: bool = False) -> str:
    """Say that the session has ended; `elsewhere` is where the provider's own is ended."""
    if elsewhere:
        address = escape(elsewhere)
        return page(
            "Logged out",
            "<p>You are logged out of Rota. Now for the identity provider …</p>"
            f'<p><a href="{address}">Go on</a> if nothing happens.</p>',
            prefix,
            # Not a redirect: browsers hold the answer to a form to `form-action`.
            head=f'<meta http-equiv="refresh" content="0; url={address}">',
        )
    note = (
        "<p class='quiet'>If you are still logged in at the identity provider, the next login may "
        "ask for no password: log out there, too.</p>"
        if has_provider
        else ""
    )
    return page(
        "Logged out",
        f'<p>You are logged out of Rota.</p>{note}<p><a href="{escape(prefix)}/login">Log in'
        "</a></p>",
        prefix,
    )


def code_page(prefix: str, why: str = "") -> str:
    """Ask for the code that a terminal shows."""
    problem = f'<p class="why">{escape(_sentence(why))}</p>' if why else ""
    return page(
        "Let a terminal in",
        f'{problem}<form method="get" action="{escape(prefix)}/device">'
        '<label for="code">The code that <code>rota login</code> shows</label>'
        '<p><input type="text" id="code" name="code" maxlength="20" autocomplete="off" '
        'autocapitalize="characters" spellcheck="false" autofocus required></p>'
        "<button>Go on</button></form>",
        prefix,
    )


def consent_page(prefix: str, form_token: str, grant: DeviceGrant, name: str) -> str:
    """Ask a person whether it is they who wait at a terminal."""
    return page(
        "Let a terminal in?",
        f'<p class="code">{escape(shown_code(grant.code))}</p>'
        "<dl>"
        f"<dt>calls itself</dt><dd>{escape(grant.host or 'nothing')}</dd>"
        f"<dt>asks from</dt><dd>{escape(grant.address or 'an unknown address')}</dd>"
        f"<dt>will act as</dt><dd>{escape(name)}</dd></dl>"
        "<p>Go on only if you have just typed <code>rota login</code> there and it shows this very "
        "code. Whoever sent you here otherwise would get all of your rights.</p>"
        f'<form method="post" action="{escape(prefix)}/device">{_hidden(form_token)}'
        f'<input type="hidden" name="code" value="{escape(grant.code)}">'
        '<button name="answer" value="yes">Let it in</button> '
        '<button class="second" name="answer" value="no">Refuse</button></form>',
        prefix,
    )


def decided_page(prefix: str, *, is_approved: bool) -> str:
    if is_approved:
        text = "Your terminal is logged in within a few seconds. You can close this page."
        return page("Let in", f"<p>{text}</p>", prefix)
    return page("Refused", "<p>The terminal was refused. You can close this page.</p>", prefix)


def _hidden(form_token: str) -> str:
    return f'<input type="hidden" name="form" value="{escape(form_token)}">'


def _query(next_path: str) -> str:
    return urlencode({"next": next_path})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")
