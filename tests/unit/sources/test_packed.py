"""The program that fetches sources has all in its one file that it imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rota.sources.packed import program
from rota.sources.wish import Bounds, FileWish, SourceReport, SourceWish

CONTENT = b"print('hello')\n"


def memory(data: bytes) -> int:
    descriptor = os.memfd_create("source")
    os.write(descriptor, data)
    return descriptor


def test_a_python_without_packages_executes_it(tmp_path: Path) -> None:
    path, folder = tmp_path / "source.pyz", tmp_path / "work"
    path.write_bytes(program())
    folder.mkdir()
    file, report = memory(CONTENT), memory(b"")
    wish = memory(
        SourceWish(str(folder), Bounds(), files=(FileWish("main.py", file, len(CONTENT)),)).encode()
    )

    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(path), str(wish), str(report)],
        pass_fds=(wish, report, file),
        capture_output=True,
        check=False,
        text=True,
    )
    told = SourceReport.read(report)
    for descriptor in (wish, report, file):
        os.close(descriptor)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert told == SourceReport()
    assert (folder / "main.py").read_bytes() == CONTENT
