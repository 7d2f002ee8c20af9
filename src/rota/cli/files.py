"""Files named on the command line; `-` is standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.cli.exits import CommandFailed, Exit

_STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class NamedText:
    """The content of a file."""

    label: str  # how messages call it
    stem: str  # the set's name, unless the file has one
    text: str
    has_lines: bool = True  # that people can look up
    items: tuple[Mapping[str, object], ...] = ()  # of the files that its carts name


def read_text(path: Path) -> NamedText:
    """The file's text; a failure that says why it cannot be read."""
    if str(path) == _STANDARD_INPUT:
        return NamedText("<stdin>", "stdin", sys.stdin.read())
    try:
        return NamedText(str(path), path.stem, path.read_text("utf-8"))
    except FileNotFoundError:
        hint = nearest_file(path)
        raise CommandFailed(f"there is no file {path}", code=Exit.NOT_FOUND, hint=hint) from None
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}", code=Exit.INVALID_FILE) from error
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8 text"
        raise CommandFailed(message, code=Exit.INVALID_FILE) from None


def nearest_file(path: Path) -> str:
    """`did you mean upgrade.yaml?` for a file beside the one that is not there; "": none is."""
    from difflib import get_close_matches  # only for those who mistyped

    try:
        names = [each.name for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else ""
