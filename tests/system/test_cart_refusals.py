"""Carts that cannot work are refused or explained before anything of them starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import IO, Any

import pytest

from rota.sdk.cart_drafts import MOST_ITEMS
from testkit.processes import ROTA, RotaUp, environment
from testkit.waiting import PATIENCE, eventually
from tests.system.jobs import Document, apply, job

ONE = {"key": "db-1", "with": {"host": "db-1"}}
TWO = {"key": "db-2", "with": {"host": "db-2"}}
BIG = 300_000_000  # bytes
LITTLE_MEMORY = 240_000  # KiB: what may be sent is read, and no more of the file
LITTLE_WORK = 20.0  # seconds of processor time: all of the file would take minutes


@pytest.fixture(scope="module")
def server(shared: RotaUp) -> RotaUp:
    """Knows two jobs, one of which no worker runs."""
    inputs = {"host": {"type": "string"}}
    apply(
        shared.client,
        job("upgrade", "true", inputs=inputs),
        job("elsewhere", "true", inputs=inputs, pool="elsewhere"),
    )
    return shared


def cart_file(folder: Path, **fields: Any) -> str:
    """The path of a job file with one cart."""
    cart: Document = {"name": "rollout", "job": "upgrade", **fields}
    path = folder / "rollout.json"
    path.write_text(json.dumps({"jobs": [], "carts": [cart]}))
    return str(path)


class TestRefusedFiles:
    @pytest.mark.parametrize(
        ("fields", "code", "words"),
        [
            pytest.param({"items": []}, 6, "items", id="no items"),
            pytest.param({"items": [ONE, ONE]}, 6, '"db-1"', id="duplicate keys"),
            pytest.param({"items": [ONE | {"order": 1.5}]}, 6, "whole number", id="order"),
            pytest.param(
                {"items": [ONE], "failures": {"allow": "101%"}}, 6, "at most 100%", id="101 %"
            ),
            pytest.param(
                {"items": [ONE], "order": "groups", "group_size": 0}, 6, "from 1", id="group of 0"
            ),
            pytest.param({"items": [ONE], "job": "upgrad"}, 3, "no job upgrad", id="unknown job"),
            pytest.param(
                {"items": [ONE, TWO | {"with": {"port": 1}}]}, 6, "db-2", id="inputs that misfit"
            ),
            pytest.param({"items": [ONE | {"order": 1}, TWO]}, 6, "order", id="some numbered"),
        ],
    )
    def test_nothing_is_stored(
        self, server: RotaUp, tmp_path: Path, fields: Document, code: int, words: str
    ) -> None:
        file = cart_file(tmp_path, **fields)

        planned = server.command("cart", "plan", file)
        submitted = server.command("cart", "submit", file, "--yes")

        for refused in (planned, submitted):
            assert refused.returncode == code, refused.stderr
            assert words in refused.stderr
            assert "Traceback" not in refused.stderr
        assert not carts(server)

    def test_every_bad_line_of_a_table_is_told(self, server: RotaUp, tmp_path: Path) -> None:
        rows = ["key,order,host", "db-1,1,a", "db-1,2,b", "db-3,soon,c", "db-4,4"]
        (tmp_path / "items.csv").write_text("\n".join(rows))

        refused = server.command("cart", "submit", cart_file(tmp_path, items_from="items.csv"))

        assert refused.returncode == 6
        for line in (3, 4, 5):
            assert f"items.csv:{line}" in refused.stderr
        assert not carts(server)


def many_rows(file: IO[bytes]) -> None:
    file.write(b"key,host\n")
    rows = b"".join(b"database-%020d,host-%020d\n" % (n, n) for n in range(MOST_ITEMS + 1))
    file.writelines(repeat(rows, BIG // len(rows)))


def long_rows(file: IO[bytes]) -> None:
    file.write(b"key,host\n")
    file.writelines(b"db-%d,%s\n" % (n, b"h" * 3_000) for n in range(BIG // 3_000))


def one_line(file: IO[bytes]) -> None:
    file.write(b"key,host\n")
    file.truncate(BIG)


class TestBigTable:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Iterator[Path]:
        path = tmp_path / "items.csv"
        yield path
        path.unlink()

    @pytest.mark.parametrize("write", [many_rows, long_rows, one_line])
    def test_it_is_refused_with_little_work_and_memory(
        self, server: RotaUp, tmp_path: Path, table: Path, write: Callable[[IO[bytes]], None]
    ) -> None:
        with table.open("wb") as file:
            write(file)
        file_name = cart_file(tmp_path, items_from=table.name)

        code, said, seconds, memory = measured(server, "cart", "submit", file_name, "--yes")

        assert (code, "items.csv:" in said) == (6, True), said
        assert seconds < LITTLE_WORK
        assert memory < LITTLE_MEMORY
        assert not carts(server)


class TestNobodyCanRunIt:
    def test_plan_says_so_and_the_first_run_explains_it(
        self, server: RotaUp, tmp_path: Path
    ) -> None:
        file = cart_file(tmp_path, name="nowhere", job="elsewhere", items=[ONE, TWO])

        planned = server.command("cart", "plan", file)
        submitted = server.command("cart", "submit", file)

        told = "no live worker of pool elsewhere can run it"
        assert (planned.returncode, told in planned.stdout) == (0, True), planned
        assert (submitted.returncode, told in submitted.stderr) == (0, True), submitted
        [run] = eventually(lambda: server.client.list_runs(job="elsewhere").items)
        why = server.command("run", "why", run.id)
        assert "no worker" in why.stdout
        assert server.client.cancel_cart("nowhere").changed
        assert server.client.wait_for_cart("nowhere", PATIENCE.total_seconds()).skipped == 2


def carts(server: RotaUp) -> list[Document]:
    """Those that are stored, but for the one that is accepted."""
    listed = server.command("cart", "list", "--where", "name:rollout", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    found: list[Document] = json.loads(listed.stdout)["items"]
    return found


# A process counts the memory of whoever forked it as its own, so that somebody small has to.
LAUNCHER = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""


def measured(server: RotaUp, *words: str) -> tuple[int, str, float, int]:
    """The exit code of a command, what it said, and the seconds and kilobytes that it used."""
    command = [sys.executable, "-c", LAUNCHER, str(ROTA), *words]
    done = subprocess.run(
        command, env=environment(server.home), capture_output=True, text=True, check=True
    )
    code, seconds, kilobytes = json.loads(done.stdout.splitlines()[-1])
    return code, done.stderr, seconds, kilobytes
