from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[3] / "bench" / "peers"
LOCK_FILE = PEERS / "requirements.txt"
NODE_LOCK_FILE = PEERS / "node" / "package-lock.json"


def test_every_peer_is_pinned_and_hashed() -> None:
    requirements = re.split(r"\n(?=[a-z])", LOCK_FILE.read_text().strip())

    unsafe = [each for each in requirements if "==" not in each or "--hash=sha256:" not in each]

    assert len(requirements) > 1
    assert unsafe == []


def test_lock_file_names_no_place_to_download_from() -> None:
    assert re.findall(r".*://.*|^-.*", LOCK_FILE.read_text(), flags=re.MULTILINE) == []


def test_a_peer_is_locked_with_the_extras_that_are_asked_for() -> None:
    asked = re.findall(r"^(\S+?)\[(.+)\]", (PEERS / "requirements.in").read_text(), re.MULTILINE)
    locked = dict(re.findall(r"^(\S+?)\[(.+)\]==", LOCK_FILE.read_text(), re.MULTILINE))

    assert dict(asked).items() <= locked.items()


def test_extras_of_a_peers_own_requirements_are_locked() -> None:
    """Procrastinate asks for `psycopg[pool]`, Celery for `kombu[redis]`."""
    lines = LOCK_FILE.read_text().splitlines()

    assert any(line.startswith("psycopg[binary,pool]==") for line in lines)
    assert any(line.startswith("kombu[redis]==") for line in lines)


def test_every_peer_on_node_is_pinned_and_hashed_wherever_it_comes_from() -> None:
    packages = json.loads(NODE_LOCK_FILE.read_text())["packages"]
    installed = {name: package for name, package in packages.items() if name}

    assert "node_modules/graphile-worker" in installed
    assert [name for name, package in installed.items() if "integrity" not in package] == []
    assert [name for name, package in installed.items() if "resolved" in package] == []


@pytest.mark.parametrize("module", sorted(PEERS.glob("*.py")), ids=lambda path: path.stem)
def test_what_runs_with_the_peers_python_knows_nothing_of_rota(module: Path) -> None:
    tree = ast.parse(module.read_text())

    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert [name for name in imported if name.split(".")[0] == "rota"] == []
