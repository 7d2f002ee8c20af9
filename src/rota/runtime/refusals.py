"""Why a worker will not be taken, passed from its process to the one that would start it again.

Between the two is a guardian, who hands on only an exit code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from rota.domain.errors import Denied, Invalid, RotaError

_NOTE = "refusal.json"
_UNTOLD = "the worker was refused, and its note of why cannot be read"


class _Note(msgspec.Struct, frozen=True):
    kind: Literal["denied", "invalid"]
    code: str
    message: str
    hint: str


def is_final(error: BaseException) -> bool:
    """Whether a worker that starts again would only meet the same."""
    is_missing_extra = isinstance(error, RotaError) and error.code == "extra_missing"
    return isinstance(error, Denied | Invalid) or is_missing_extra


def leave_note(folder: Path, error: RotaError) -> None:
    """Called by the worker that was refused."""
    kind: Literal["denied", "invalid"] = "denied" if isinstance(error, Denied) else "invalid"
    note = _Note(kind, error.code, error.message, error.hint)
    (folder / _NOTE).write_bytes(msgspec.json.encode(note))


def take_note(folder: Path) -> RotaError:
    """Called by whoever would start it again: the error, which is then forgotten."""
    path = folder / _NOTE
    try:
        note = msgspec.json.decode(path.read_bytes(), type=_Note)
        path.unlink()
    except (OSError, msgspec.MsgspecError):
        return Invalid(_UNTOLD, hint=f"look at {path}")
    kind = Denied if note.kind == "denied" else Invalid
    return kind(note.message, code=note.code, hint=note.hint)
