"""The fresh folders attempts work in, and the files beside them."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.domain.portable import why_not_portable

_MAX_OUTPUTS = 1024 * 1024
_PROGRESS_TAIL = 4096
_PROGRESS_MESSAGE = 500
_MODE = 0o700


class WorkFolders:
    """Empty folders to work in. One that is still empty afterwards is used again: making and
    removing folders waits for the file system's journal, which short jobs would feel."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._free: list[WorkFolder] = []
        self._numbers = itertools.count(1)
        shutil.rmtree(root, ignore_errors=True)  # left behind by a worker that was killed
        root.mkdir(parents=True, mode=_MODE)

    def take(self) -> WorkFolder:
        if self._free:
            return self._free.pop()
        folder = WorkFolder(self._root, str(next(self._numbers)))
        folder.path.mkdir(mode=_MODE)
        return folder

    def give_back(self, folder: WorkFolder) -> None:
        """Every process that worked in it is gone."""
        if folder.is_like_new():
            self._free.append(folder)
        else:
            asyncio.get_running_loop().run_in_executor(None, folder.remove)


class WorkFolder:
    """A folder, and beside it the files through which the job talks to Rota."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / name
        self.output = root / f"{name}.output"
        self.progress = root / f"{name}.progress"
        self._text = str(self.path)
        self._scripts: list[Path] = []

    def is_like_new(self) -> bool:
        beside = (f"{self._text}.output", f"{self._text}.progress")
        if self._scripts or any(map(os.path.lexists, beside)):
            return False
        try:
            is_private = stat.S_IMODE(os.lstat(self._text).st_mode) == _MODE
            with os.scandir(self._text) as entries:
                return is_private and next(entries, None) is None
        except OSError:
            return False

    def write_script(self, step: int, suffix: str, text: str) -> Path:
        """Put the script of a step into a file that its interpreter can read."""
        path = self.path.with_name(f"{self.path.name}.step{step}{suffix}")
        path.write_text(text, "utf-8")
        path.chmod(_MODE)
        self._scripts.append(path)
        return path

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        for path in (self.output, self.progress, *self._scripts):
            with suppress(OSError):
                path.unlink()

    def read_outputs(self) -> tuple[Any, str]:
        """What the job wrote to $ROTA_OUTPUT, and a complaint if that is not usable."""
        try:
            data = _read_regular(self.output, _MAX_OUTPUTS + 1)
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"$ROTA_OUTPUT could not be read: {error.strerror}"
        if len(data) > _MAX_OUTPUTS:
            return None, "$ROTA_OUTPUT is over 1 MiB and was not kept"
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            return None, f"$ROTA_OUTPUT is not JSON and was not kept: {error}"
        complaint = why_not_portable(value)
        return (None, f"$ROTA_OUTPUT was not kept: {complaint}") if complaint else (value, "")

    def read_progress(self) -> str:
        """The last line the job wrote to $ROTA_PROGRESS; "" if there is none."""
        try:
            data = _read_regular(self.progress, _PROGRESS_TAIL, from_end=True)
        except OSError:
            return ""
        return data.decode(errors="replace").strip().rsplit("\n", 1)[-1]


def _read_regular(path: Path, limit: int, *, from_end: bool = False) -> bytes:
    """At most `limit` bytes of a plain file: a job may leave a pipe or a link there instead."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        if from_end:
            file.seek(max(status.st_size - limit, 0))
        return file.read(limit)


def parse_progress(line: str) -> tuple[float, float | None, str] | None:
    """`DONE[/TOTAL] [MESSAGE]`, or a JSON object with these names; None: neither."""
    try:
        if line.startswith("{"):
            value = json.loads(line)
            done, total, message = value["done"], value.get("total"), value.get("message", "")
        else:
            numbers, _, message = line.partition(" ")
            done, _, rest = numbers.partition("/")
            total = rest or None
        amounts = [float(done)] if total is None else [float(done), float(total)]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    text = str(message)[:_PROGRESS_MESSAGE]
    if why_not_portable([*amounts, text]):
        return None
    return amounts[0], amounts[1] if len(amounts) > 1 else None, text
