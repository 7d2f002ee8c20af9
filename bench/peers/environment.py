"""The environment that holds the peers, made when it is first needed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import processes

_ROOT = Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / "bench" / ".peers"
_PYTHON = _FOLDER / "bin" / "python"
_RECORD = _FOLDER / "installed"
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_STOP_SECONDS = 10.0


def command(module: str, *arguments: object) -> list[str]:
    """How to run a module of `bench.peers` with the peers' Python."""
    _install()
    return [str(_PYTHON), "-m", f"bench.peers.{module}", *map(str, arguments)]


def run(module: str, *arguments: object, environ: Mapping[str, str] | None = None) -> str:
    """Run a module to its end; returns what it printed."""
    return finish(command(module, *arguments), environ or {})


def finish(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Run a command to its end; returns what it printed."""
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@contextmanager
def running(
    module: str, *arguments: object, environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module in the background, until the block ends."""
    with background(command(module, *arguments), environ) as process:
        yield process


@contextmanager
def background(
    command: Sequence[str], environ: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in the background, until the block ends."""
    process = subprocess.Popen(
        command, cwd=_ROOT, env={**os.environ, **environ}, start_new_session=True
    )
    try:
        yield process
    finally:
        members = processes.tree(process.pid)
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for member in members:
            if member.is_alive():
                member.kill()


def _install() -> None:
    wanted = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    if _RECORD.exists() and _RECORD.read_text(encoding="ascii") == wanted:
        return
    print("Installing the peers into bench/.peers (once) …", flush=True)
    venv.create(_FOLDER, clear=True, symlinks=True)
    (_FOLDER / ".gitignore").write_text("*\n", encoding="ascii")
    # Neither environment has a pip of its own: the interpreter below both has.
    outer = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
    pip = [
        outer,
        "-m",
        "pip",
        f"--python={_PYTHON}",
        "install",
        "-qq",
        "--require-hashes",
        "--no-deps",
    ]
    subprocess.run([*pip, f"--requirement={_REQUIREMENTS}"], check=True)
    _RECORD.write_text(wanted, encoding="ascii")
