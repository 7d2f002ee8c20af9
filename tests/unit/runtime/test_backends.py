from __future__ import annotations

import subprocess
import sys

import pytest

from rota.domain.errors import Unavailable
from rota.runtime.backends import needing_extra

DRIVERS = {"asyncpg", "grpc", "google.protobuf", "nats", "obstore"}


def test_missing_driver_says_what_to_install() -> None:
    with pytest.raises(Unavailable, match="asyncpg") as refused, needing_extra():
        raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")

    assert refused.value.hint == 'pip install "rota[cluster]"'


def test_any_other_missing_module_is_a_bug_of_ours() -> None:
    with pytest.raises(ModuleNotFoundError), needing_extra():
        raise ModuleNotFoundError("No module named 'rota.nothing'", name="rota.nothing")


def test_server_on_sqlite_loads_no_driver_of_a_cluster() -> None:
    program = "import rota.runtime.server, rota.runtime.worker_process, sys; print(*sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout

    assert DRIVERS & set(printed.split()) == set()
