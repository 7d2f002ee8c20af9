from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import rota
import rota.testing
from rota import api
from rota.sdk import answers

STUB = Path(rota.__file__).with_suffix(".pyi")


def test_every_public_name_can_be_had() -> None:
    for name in rota.__all__:
        assert getattr(rota, name).__name__ == name


def test_stub_names_the_same_things_from_the_same_places() -> None:
    imports = [
        node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    stubbed = {alias.asname: node.module for node in imports for alias in node.names}

    assert stubbed == {name: getattr(rota, name).__module__ for name in rota.__all__}


def test_testing_says_what_is_public() -> None:
    assert rota.testing.__all__ == ["Inline", "inline"]
    assert all(hasattr(rota.testing, name) for name in rota.testing.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Apq'"):
        _ = rota.Apq  # type: ignore[attr-defined]


def test_names_are_listed_before_they_are_used() -> None:
    assert set(rota.__all__) <= set(dir(rota))


def imported_by(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_rota_imports_nothing_of_it() -> None:
    assert {name for name in imported_by("import rota") if name.startswith("rota.")} == set()


def test_sync_client_needs_neither_an_event_loop_nor_a_full_http_client() -> None:
    assert imported_by("from rota import Client") & {"asyncio", "httpx"} == set()


def test_sdk_imports_nothing_of_the_server() -> None:
    loaded = imported_by("from rota import App, AsyncClient; import rota.sdk.host.threads")

    packages = {name.split(".")[1] for name in loaded if name.startswith("rota.")}
    assert packages == {"api", "sdk"}


def test_every_answer_of_the_api_can_be_had_from_the_sdk() -> None:
    described = {
        kind.__name__
        for found in pkgutil.iter_modules(api.__path__, f"{api.__name__}.")
        for kind in vars(importlib.import_module(found.name)).values()
        if isinstance(kind, type) and issubclass(kind, answers.Answer)
    }

    assert described <= set(answers.__all__)
    assert all(hasattr(answers, name) for name in answers.__all__)
