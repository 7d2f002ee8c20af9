"""The fresh folder of an attempt, and the files beside it through which the job talks to Rota."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

_MAX_OUTPUTS = 1024 * 1024


class WorkFolder:
    """`ROOT/RUN.ATTEMPT`, made when the attempt begins and removed when it ends."""

    def __init__(self, root: Path, name: str) -> None:
        self.path = root / name
        self.output = root / f"{name}.output"
        self.progress = root / f"{name}.progress"
        self._has_scripts = False

    def make(self) -> None:
        self.path.mkdir(mode=0o700)

    def script(self, step: int) -> Path:
        """Where the script of a step may be written; a suffix may be added."""
        self._has_scripts = True
        return self.path.with_name(f"{self.path.name}.step{step}")

    def remove(self) -> None:
        try:
            self.path.rmdir()  # nearly always empty: cheaper than a walk
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
        self.output.unlink(missing_ok=True)
        self.progress.unlink(missing_ok=True)
        if self._has_scripts:
            for script in self.path.parent.glob(f"{self.path.name}.step*"):
                script.unlink(missing_ok=True)

    def read_outputs(self) -> tuple[Any, str]:
        """What the job wrote to $ROTA_OUTPUT, and a complaint if that is not usable."""
        try:
            with self.output.open("rb") as file:
                data = file.read(_MAX_OUTPUTS + 1)
        except FileNotFoundError:
            return None, ""
        except OSError as error:
            return None, f"$ROTA_OUTPUT could not be read: {os.strerror(error.errno or 0)}"
        if len(data) > _MAX_OUTPUTS:
            return None, "$ROTA_OUTPUT is over 1 MiB and was not kept"
        try:
            return json.loads(data), ""
        except ValueError as error:
            return None, f"$ROTA_OUTPUT is not JSON and was not kept: {error}"

    def read_progress(self) -> str:
        """The last line the job wrote to $ROTA_PROGRESS; "" if there is none."""
        try:
            return self.progress.read_text("utf-8").strip().rsplit("\n", 1)[-1]
        except (OSError, UnicodeDecodeError):
            return ""


def parse_progress(line: str) -> tuple[float, float | None, str] | None:
    """`DONE[/TOTAL] [MESSAGE]`, or a JSON object with these names; None: neither."""
    try:
        if line.startswith("{"):
            value = json.loads(line)
            total = value.get("total")
            message = str(value.get("message", ""))
            return float(value["done"]), None if total is None else float(total), message
        numbers, _, message = line.partition(" ")
        done, _, total = numbers.partition("/")
        return float(done), float(total) if total else None, message
    except (ValueError, KeyError, TypeError):
        return None
