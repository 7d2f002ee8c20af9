"""The program that fetches sources, packed into one file: any Python executes it, behind any wall.

Not a part of the program itself: the worker packs it (`executors/source.py`). What the program
imports must be on the list here, and a test executes it with nothing else.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_MODULES = (
    "__init__",
    "domain/__init__",
    "domain/addresses",
    "domain/errors",
    "domain/files",
    "domain/git",
    "domain/masking",
    "domain/spec",
    "sources/__init__",
    "sources/__main__",
    "sources/calls",
    "sources/git",
    "sources/unpack",
    "sources/wish",
)
_MAIN = """import sys
from rota.sources.__main__ import main
sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
"""


@cache
def program() -> bytes:
    """Return a zip file that Python executes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _MODULES:
            archive.write(_ROOT / f"{name}.py", f"rota/{name}.py")
        archive.writestr("__main__.py", _MAIN)
    return data.getvalue()
