"""Command lines and what came of them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from rota.cli.main import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Console:
    captured: pytest.CaptureFixture[bytes]

    def __call__(self, *words: str) -> Ended:
        """Run `rota` with these words."""
        self.captured.readouterr()
        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = self.captured.readouterr()
        return Ended(int(code), out.decode(), err.decode())
