"""Key ring: values sealed so that a copy of the database alone does not reveal them.

A ring is text, one key a line: `rk1:<id>:<base64 of 32 bytes>`; blank lines and those that begin
with `#` count for nothing. The first key seals, all of them open: a new key is put first, and an
old one can go when nothing is sealed with it any more.

Each value has a data key of its own, wrapped by a key of the ring. A sealed value is text that
names this key: `rs1:<id of the key>:<wrapped data key>:<encrypted value>`. Both are AES-256-GCM, as
nonce, ciphertext and tag in base64.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rota.domain.errors import Invalid, Problem, Unavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_FORM = "rk1"
_SEALED_FORM = "rs1"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_ID_BYTES = 4
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WRAPPING = b"rota-key/1\0"  # what a ciphertext is for: none can be taken for another
_SEALING = b"rota-sealed/1\0"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a ring."""

    id: str  # stands in the clear beside everything it wraps
    secret: bytes = field(repr=False)

    def line(self) -> str:
        """Return the key as a line of a ring."""
        return f"{_KEY_FORM}:{self.id}:{base64.b64encode(self.secret).decode()}"


def new_key() -> Key:
    """Make a key from the system's random numbers."""
    return Key(os.urandom(_ID_BYTES).hex(), os.urandom(_KEY_BYTES))


def parse_keys(text: str) -> tuple[Key, ...]:
    """Parse the text of a ring, the sealing key first.

    Raise `Invalid` with every bad line, by its number: lines are secret.
    """
    keys: list[Key] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                keys.append(_parse_line(line.strip(), keys))
            except ValueError as error:
                problems.append(Problem(str(error), line=number))
    if not keys and not problems:
        problems.append(Problem("there is no key in it"))
    if problems:
        raise Invalid("the key ring cannot be used", problems, code="bad_key_ring")
    return tuple(keys)


def _parse_line(line: str, before: Sequence[Key]) -> Key:
    form, _, rest = line.partition(":")
    key_id, colon, encoded = rest.partition(":")
    if form != _KEY_FORM or not colon:
        raise ValueError(f"it is not {_KEY_FORM}:ID:BASE64")
    if not _ID.fullmatch(key_id):
        raise ValueError("the id has other characters than A-Z a-z 0-9 . _ - or is too long")
    if any(key.id == key_id for key in before):
        raise ValueError(f"the id {key_id} is there twice")
    try:
        secret = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"what follows the id {key_id} is not base64") from error
    if len(secret) != _KEY_BYTES:
        raise ValueError(f"the key {key_id} has {len(secret)} bytes and not {_KEY_BYTES}")
    return Key(key_id, secret)


class KeyRing:
    """Keys that seal and open values."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[str, Key] = {}
        self.replace(keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the keys, that of the sealing one first."""
        return tuple(self._keys)

    def replace(self, keys: Iterable[Key]) -> None:
        """Take these keys from now on: a ring is renewed while the server runs."""
        ring = {key.id: key for key in keys}
        if not ring:
            raise ValueError("a ring has at least one key")
        self._keys = ring

    def seal(self, plain: bytes, context: bytes) -> str:
        """Encrypt a value. It opens with the same `context` only: what it is, and whose."""
        data_key = os.urandom(_KEY_BYTES)
        first = next(iter(self._keys.values()))
        return ":".join(
            (
                _SEALED_FORM,
                first.id,
                _encrypt(first.secret, data_key, _WRAPPING + first.id.encode()),
                _encrypt(data_key, plain, _SEALING + context),
            )
        )

    def open(self, sealed: str, context: bytes) -> bytes:
        """Decrypt a value.

        Raise `Unavailable` (`key_missing`) if the ring lacks its key, which the message names, and
        `Invalid` (`bad_seal`) if it was altered or belongs to another context.
        """
        key_id, wrapped, value = _parts(sealed)
        return _decrypt(self._unwrap(key_id, wrapped), value, _SEALING + context)

    def is_current(self, sealed: str) -> bool:
        """Return whether the first key has wrapped this value."""
        return sealed.startswith(sealed_by(self.ids[0]))

    def rewrap(self, sealed: str) -> str:
        """Wrap the value's data key by the first key; the value itself is not decrypted.

        Raise the errors of `open`.
        """
        key_id, wrapped, value = _parts(sealed)
        first = next(iter(self._keys.values()))
        if key_id == first.id:
            return sealed
        data_key = self._unwrap(key_id, wrapped)
        again = _encrypt(first.secret, data_key, _WRAPPING + first.id.encode())
        return ":".join((_SEALED_FORM, first.id, again, value))

    def _unwrap(self, key_id: str, wrapped: str) -> bytes:
        key = self._keys.get(key_id)
        if key is None:
            raise Unavailable(
                f"the key {key_id}, with which this was sealed, is not in the key ring",
                code="key_missing",
                hint="put it back below the others that secrets_key or secrets_key_command has",
                facts={"key_id": key_id},
            )
        return _decrypt(key.secret, wrapped, _WRAPPING + key_id.encode())


def sealed_by(key_id: str) -> str:
    """Return how every value begins that this key has wrapped."""
    return f"{_SEALED_FORM}:{key_id}:"


def _parts(sealed: str) -> tuple[str, str, str]:
    parts = sealed.split(":")
    if len(parts) != 4 or parts[0] != _SEALED_FORM:
        raise _bad_seal()
    return parts[1], parts[2], parts[3]


def _encrypt(key: bytes, plain: bytes, associated: bytes) -> str:
    nonce = os.urandom(_NONCE_BYTES)
    return base64.b64encode(nonce + _cipher(key).encrypt(nonce, plain, associated)).decode()


def _decrypt(key: bytes, text: str, associated: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        data = base64.b64decode(text, validate=True)
        return _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise _bad_seal() from error


def _cipher(key: bytes) -> AESGCM:
    # Imported with the first value: a server that seals nothing saves the memory of OpenSSL.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _bad_seal() -> Invalid:
    return Invalid(
        "a sealed value was altered, or is not where it was sealed for",
        code="bad_seal",
        hint="write it anew, or restore a backup",
    )
