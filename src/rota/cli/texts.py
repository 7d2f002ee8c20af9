"""Texts that a command line names: of files, of standard input (`-`), and of apps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rota.cli.failures import FileRefused
from rota.cli.terminal import CommandFailed, Exit
from rota.sdk.app import explain_import, is_not_there, load_app

STANDARD_INPUT = "-"
_STANDARD_INPUT_LABEL = "<stdin>"


@dataclass(frozen=True, slots=True)
class NamedText:
    """Content of a file, with its name."""

    label: str  # how messages call it
    stem: str  # the file's name without its ending
    text: str
    has_lines: bool = True  # that people can look up
    items: tuple[Mapping[str, object], ...] = ()  # of the files that its carts name
    folder: Path | None = None  # that it lies in; None: in none

    @property
    def set_name(self) -> str | None:
        """Return the set's name, unless the text has one; None: a pipe has no name."""
        return None if self.argument == STANDARD_INPUT else self.stem

    @property
    def argument(self) -> str:
        """Return how a command line names it."""
        return STANDARD_INPUT if self.label == _STANDARD_INPUT_LABEL else self.label


def read_text(path: Path) -> NamedText:
    """Read a file; raise a failure that says why it cannot be read."""
    if str(path) == STANDARD_INPUT:
        return NamedText(_STANDARD_INPUT_LABEL, "stdin", _read_standard_input(), folder=Path())
    try:
        return NamedText(str(path), path.stem, path.read_text("utf-8"), folder=path.parent)
    except FileNotFoundError:
        hint = nearest_file(path)
        raise CommandFailed(f"there is no file {path}", code=Exit.NOT_FOUND, hint=hint) from None
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}", code=Exit.INVALID_FILE) from error
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8 text"
        raise CommandFailed(message, code=Exit.INVALID_FILE) from None


def _read_standard_input() -> str:
    """Read standard input as UTF-8 like files, whatever the locale is."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        message = f"{_STANDARD_INPUT_LABEL} is not UTF-8 text"
        raise CommandFailed(message, code=Exit.INVALID_FILE) from None


def nearest_file(path: Path) -> str:
    """Return `did you mean upgrade.yaml?` for a file beside the missing one; "": none fits."""
    from difflib import get_close_matches  # only for those who mistyped

    try:
        names = [each.name for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else ""


def with_items(source: NamedText, folder: Path) -> NamedText:
    """Return the job file with the items of the files beside it; `folder` is its own."""
    if "items_from" not in source.text:
        return source
    return replace(source, items=tuple(_items(source, folder)))


def _items(source: NamedText, folder: Path) -> Iterator[Mapping[str, object]]:
    from rota.runtime.cart_files import items_beside  # slow to import, and not for every file
    from rota.runtime.offline import Invalid
    from rota.sdk.packing import as_if_uploaded

    text = as_if_uploaded(source.text, folder)
    # Problems of the job file itself are reported by the server.
    for found in items_beside(text, name=source.stem, folder=folder):
        try:
            yield from found.documents()
        except Invalid as error:
            raise FileRefused(found.label, error.message, error.problems) from error


_HINT = "--app MODULE:app names a variable of a module here or of an installed package"
_MEND = "mend the module; the whole trace: python -c 'import {module}'"
_TRY = "import sys; from rota.sdk.app import try_app; sys.exit(try_app(sys.argv[1]))"
_NOT_THERE = 2  # how `try_app` ends where the reference is wrong, not the code
_LOAD_SECONDS = 60  # as long as a worker waits for it


def read_app(reference: str) -> NamedText:
    """Read the jobs of `MODULE:app`, in a set that has the app's name."""
    _import_from_current_folder()
    try:
        app = load_app(reference)
        text = json.dumps({"set": app.name, "jobs": app.documents()})
    except (Exception, SystemExit) as error:
        told = explain_import(reference, error)
        failure = _unloadable(reference, told, is_there=not is_not_there(reference, error))
        failure.code = Exit.INVALID_FILE
        raise failure from error
    return NamedText(reference, app.name, text, has_lines=False)


def require_app(reference: str) -> None:
    """Import an app in another process, to see whether a worker could: a server never does."""
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _TRY, reference],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=_LOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        told = f"importing it takes over {_LOAD_SECONDS} s"
        raise _unloadable(reference, told, is_there=True) from None
    if ended.returncode != 0:
        told = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise _unloadable(reference, told, is_there=ended.returncode != _NOT_THERE)


def _unloadable(reference: str, told: str, *, is_there: bool) -> CommandFailed:
    """Build the failure: wrong usage if there is no such app, a bad file if its code fails."""
    hint = _MEND.format(module=reference.partition(":")[0]) if is_there else _HINT
    code = Exit.INVALID_FILE if is_there else Exit.USAGE
    return CommandFailed(f"the app {reference} cannot be loaded: {told}", code=code, hint=hint)


def _import_from_current_folder() -> None:
    """Add the current folder to the import path, as workers do: the command is elsewhere."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
