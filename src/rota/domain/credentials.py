"""How secrets look: what each is for, and whether it was copied whole, without asking the store.

A secret is `rota`, a letter for its kind, `_`, 32 random characters (190 bits) and 6 of a checksum
over all before. The beginning lets secret scanners recognise a leaked one.
"""

from __future__ import annotations

import hashlib
import secrets
import string
import zlib
from enum import StrEnum

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
RANDOM_CHARACTERS = 32
_CHECK_CHARACTERS = 6
_OLD_BEGINNINGS = ("rota_", "rotaw_")  # of secrets made before there were kinds: they stay valid
_OLD_CHARACTERS = 32
_SHOWN_CHARACTERS = 8


class SecretKind(StrEnum):
    """Kinds of secrets, by the letter in each."""

    PROGRAM = "t"
    TERMINAL = "c"  # a session of the CLI
    SESSION = "s"  # of a browser
    LINK = "l"  # logs in once
    WORKER = "w"
    JOIN = "j"  # a worker trades it for a secret of its own
    REPORT = "r"  # another system reports on one attempt of a run


def new_secret(kind: SecretKind) -> str:
    """Make a secret of this kind from the system's random numbers."""
    return compose(kind, "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_CHARACTERS)))


def new_token_id() -> str:
    """Make the id of a token, which is no secret."""
    return f"t_{secrets.token_hex(6)}"


def digest(secret: str) -> str:
    """Return the stored form of a secret. Secrets are random, so a fast hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def compose(kind: SecretKind, random: str) -> str:
    """Return the secret of this kind with these random characters."""
    head = f"rota{kind}_{random}"
    return head + _checksum(head)


def kind_of(secret: str) -> SecretKind | None:
    """Return what a secret is for by its looks; None: it has the form from before there were kinds.

    Raise `ValueError` if no secret looks like this: it is mistyped, cut off, or not ours.
    """
    if _is_old(secret):
        return None
    head, check = secret[:-_CHECK_CHARACTERS], secret[-_CHECK_CHARACTERS:]
    beginning, _, random = head.partition("_")
    is_whole = len(random) == RANDOM_CHARACTERS and _checksum(head) == check
    if not (is_whole and beginning.startswith("rota")):
        raise ValueError("no secret looks like this")
    return SecretKind(beginning.removeprefix("rota"))


def shown_part(secret: str) -> str:
    """Return the beginning of a secret that may be shown: its kind, and too little to guess on."""
    beginning, _, random = secret.partition("_")
    return f"{beginning}_{random[:_SHOWN_CHARACTERS]}"


# Codes that people type to let a terminal in: no vowels, so that they spell nothing, and no
# letters that look like digits.
CODE_ALPHABET = "BCDFGHJKLMNPQRSTVWXZ"
CODE_CHARACTERS = 8


def shown_code(code: str) -> str:
    """Return a code as people read it: in two halves."""
    return f"{code[:4]}-{code[4:]}"


def read_code(text: str) -> str:
    """Return a code however it was typed; "": nothing of this form is one."""
    code = "".join(each for each in text.upper() if each.isalnum())
    is_code = len(code) == CODE_CHARACTERS and set(code) <= set(CODE_ALPHABET)
    return code if is_code else ""


def _is_old(secret: str) -> bool:
    return secret.startswith(_OLD_BEGINNINGS) and (len(secret.partition("_")[2]) == _OLD_CHARACTERS)


def _checksum(head: str) -> str:
    rest = zlib.crc32(head.encode(errors="replace"))
    digits = []
    for _ in range(_CHECK_CHARACTERS):
        rest, digit = divmod(rest, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
