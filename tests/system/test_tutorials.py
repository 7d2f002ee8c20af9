"""The tutorials, typed in as they stand: what they print is what the pages say."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from testkit.processes import (
    ROTA,
    RotaUp,
    environment,
    kill_all_of,
    processes_of,
    run_rota,
)
from testkit.servers.ports import free_ports
from testkit.waiting import PATIENCE, eventually
from tests.unit.docs.pages import ROOT, Block, Exchange, blocks, exchanges

QUICKSTART = ROOT / "docs" / "quickstart.md"
FUNCTIONS = ROOT / "docs" / "tutorials" / "python-functions.md"
DEPLOYMENT = ROOT / "docs" / "tutorials" / "code-deployment.md"
PAYOUTS = ROOT / "docs" / "tutorials" / "payouts.md"
STARTS = ("make up", "make deployment", "rota up")  # what runs in the first shell
# Typed once; what only looks may need another look.
ACTS = ("rota trigger", "rota apply", "rota cart submit", "rota cart rollback", "rota run download")

_ASKS = "echo $?"

# What differs from one time to the next, and what it is compared as.
CHANGING = (
    (re.escape(str(ROTA)), ".venv/bin/rota"),
    (r"\b[rwbc]_[0-9a-z]{8,}", "ID"),
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"\d+ bytes", "SIZE"),
    (r"token=\S+", "TOKEN"),
    (r"http://127\.0\.0\.1:\d+", "URL"),
    (r"^open (URL/login\?TOKEN|the link in \S+)", "open LINK"),  # in a file, for want of a terminal
    (r"^made \S+key_ring:", "made RING:"),
    (r"data in \S+", "FOLDER"),
    (r"claimed by \S+", "claimed by WORKER"),
    (r"[A-Z][a-z]{2} \d\d? [A-Z][a-z]{2} \d{4}", "DAY"),
    (r"\d{4}-\d\d-\d\d ", ""),  # today's is left out
    (r"\d\d:\d\d:\d\d(\.\d+)?", "CLOCK"),
    (r"CLOCK (UTC|[+-]\d\d:\d\d)", "CLOCK"),
    (r"\d+(\.\d+)? (ms|s|m|h|d)( \d\d (s|m|h))?\b", "LENGTH"),
    (r" \(LENGTH\)", ""),  # how long it waited, where that is worth telling
    (r"(never run|completed( \S+)? LENGTH ago( \S+ CLOCK)?|completed)$", "LAST"),
    (r" +", " "),
)


def comparable(text: str) -> list[str]:
    """Its lines in any order: two streams come together, and what is next depends on the day.

    How often a cart is seen on its way depends on the machine.
    """
    lines = [_compared(line) for line in text.rstrip().splitlines()]
    return sorted(line for line in lines if not re.match(r"wave \d|▶ web-", line))


def _compared(line: str) -> str:
    for pattern, word in CHANGING:
        line = re.sub(pattern, word, line)
    return line.strip()


class Reader:
    """Somebody who does what a page says, in a folder of their own."""

    def __init__(
        self, page: Path, folder: Path, rota: RotaUp | Shop, instead: tuple[str, str] = ("", "")
    ) -> None:
        self._page = page
        self._start = folder
        self._folder = folder  # where its shell is by now
        self._rota = rota
        self._instead = instead  # of what commands say, what is so here
        self._may_fail = False
        self._code = 0  # of the latest command
        self._environ = {**environment(rota.home), "COLUMNS": "120"}
        # That of the page, not where the test has it: what a reader finds depends on the folder.
        del self._environ["ROTA_HOME"]
        self._environ["PATH"] = f"{ROTA.parent}{os.pathsep}{self._environ['PATH']}"

    def follow(self) -> Iterator[tuple[Exchange, list[str]]]:
        """Each command that the page says the answer of, with what it really printed."""
        for block in blocks("console", self._page):
            found = exchanges(block)
            for place, exchange in enumerate(found, 1):
                # An exit code that the page asks for next is what it says there.
                self._may_fail = [each.command for each in found[place : place + 1]] == [_ASKS]
                yield exchange, self._typed(exchange)

    def _typed(self, exchange: Exchange) -> list[str]:
        if exchange.command.startswith(STARTS):
            return self._banner()
        if exchange.command == _ASKS:
            return [str(self._code)]
        if not exchange.printed or exchange.command.startswith(ACTS):
            return self._printed_by(exchange.command)

        def is_as_told() -> list[str]:
            printed = self._printed_by(exchange.command)
            assert printed == comparable(exchange.printed)
            return printed

        return eventually(is_as_told)

    def _banner(self) -> list[str]:
        return comparable(self._rota.printed())

    def _printed_by(self, command: str) -> list[str]:
        """As on a terminal, where both streams come together."""
        where = self._start / "where"
        # As in one shell: a command that goes elsewhere takes those after it along.
        shell = f"{command.replace(*self._instead)}\ncode=$?\npwd > {where}\nexit $code"
        ended = subprocess.run(
            ["bash", "-c", shell],
            env=self._environ,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE.total_seconds(),
            check=False,
        )
        self._folder = Path(where.read_text().strip())
        expected = 20 if "--plan" in command else 0
        if not self._may_fail:
            assert ended.returncode == expected, f"{command}\n{ended.stdout}"
        self._code = ended.returncode
        return comparable(ended.stdout)


class Shop:
    """The machines of the tutorial of deployments, started as the page says."""

    def __init__(self, folder: Path, port: int) -> None:
        self.home = folder / ".rota"
        self._log = folder / "shop.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "examples/deployment/site.py", f"--port={port}"],
                env=environment(self.home),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> Shop:
        """Wait until it says how to go on, and all machines are there."""
        eventually(lambda: "Next, in another shell" in self.printed())
        eventually(self._has_all_machines)
        return self

    def _has_all_machines(self) -> bool:
        listed = run_rota("worker", "list", "-o", "name", environ=environment(self.home))
        return listed.stdout.count("web-") == 5

    def printed(self) -> str:
        assert self._process.poll() is None
        return self._log.read_text()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE.total_seconds())
        left = processes_of(self.home)
        kill_all_of(self.home)
        assert not left


def differences(reader: Reader) -> dict[str, tuple[list[str], list[str]]]:
    """Commands whose answer is not that of the page: the page's, and the real one."""
    return {
        exchange.command: (told, printed)
        for exchange, printed in reader.follow()
        if exchange.printed and (told := comparable(exchange.printed)) != printed
    }


def save(block: Block, path: Path) -> None:
    path.write_text(block.text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_quickstart_prints_what_it_says(folder: Path) -> None:
    [hello] = blocks("yaml", QUICKSTART)
    save(hello, folder / "hello.yaml")
    rota = RotaUp(folder / ".rota", apply=[ROOT / "examples" / "welcome.yaml"])

    try:
        found = differences(Reader(QUICKSTART, folder, rota.start()))
    finally:
        rota.close()

    assert found == {}


def test_tutorial_of_functions_prints_what_it_says(folder: Path) -> None:
    [module, *_] = blocks("python", FUNCTIONS)
    save(module, folder / "shop.py")
    rota = RotaUp(folder / ".rota", app="shop:app")

    try:
        found = differences(Reader(FUNCTIONS, folder, rota.start()))
    finally:
        rota.close()

    assert found == {}


class Payer(Reader):
    """Somebody who follows the tutorial of payouts: with a ledger, and a Rota that they kill."""

    def __init__(self, page: Path, folder: Path, rota: RotaUp, port: int) -> None:
        super().__init__(page, folder, rota)
        self._up = rota
        self._port = port
        self.ledger: subprocess.Popen[bytes] | None = None

    def _typed(self, exchange: Exchange) -> list[str]:
        command = exchange.command
        if command.startswith("python3 ledger.py"):
            self.ledger = self._start_ledger(command)
            return []
        if command.startswith("sh unplugged.sh"):
            printed = self._printed_by(command)
            self._up.wait()
            return printed
        if command == "rota up":
            self._up.start()
            return []
        return super()._typed(exchange)

    def _start_ledger(self, command: str) -> subprocess.Popen[bytes]:
        words, log = command.split(" > ")
        errors = self._folder / "ledger.err"
        with (self._folder / log).open("wb") as told, errors.open("wb") as complained:
            ledger = subprocess.Popen(
                [sys.executable, *words.split()[1:], f"--port={self._port}"],
                cwd=self._folder,
                stdout=told,
                stderr=complained,
            )
        eventually(lambda: "ledger at" in (self._folder / log).read_text())
        return ledger


# What the calendar of the tutorial has, in its file and in words; and on which days that is.
CLOSED: tuple[tuple[str, str, Callable[[date], bool]], ...] = (
    ('"Sat,Sun", ', "all day on Saturday and Sunday; ", lambda day: day.weekday() > 4),
    ('"Jan 1", ', "all day on day 1 of January; ", lambda day: (day.month, day.day) == (1, 1)),
    ('"May 1", ', "all day on day 1 of May; ", lambda day: (day.month, day.day) == (5, 1)),
    ('"Dec 25", ', "all day on day 25 of December; ", lambda day: (day.month, day.day) == (12, 25)),
    (', "Dec 26"', "; all day on day 26 of December", lambda day: (day.month, day.day) == (12, 26)),
)


def open_today(page: Path) -> None:
    """Take out of a page what would keep waves from opening: somebody else reads it on Monday."""
    berlin = datetime.now(ZoneInfo("Europe/Berlin"))  # noqa: TID251 (the calendar of today)
    days = {berlin.date(), (berlin + timedelta(minutes=10)).date()}
    text = page.read_text()
    for written, said, is_closed in CLOSED:
        if any(map(is_closed, days)):
            text = text.replace(written, "").replace(said, "")
    page.write_text(text)


def test_tutorial_of_payouts_prints_what_it_says(folder: Path) -> None:
    shutil.copytree(ROOT / "examples" / "payouts", folder, dirs_exist_ok=True)
    page = Path(shutil.copy(PAYOUTS, folder))
    for each in (page, folder / "monthly.yaml"):
        open_today(each)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    jobs = folder / "payouts.yaml"
    jobs.write_text(jobs.read_text().replace("8790", str(port)))
    rota = RotaUp(folder / ".rota")
    payer = Payer(page, folder, rota, port)

    try:
        found = differences(payer)
    finally:
        rota.close()
        if payer.ledger is not None:
            payer.ledger.kill()
            payer.ledger.wait()

    assert found == {}
    assert (folder / "ledger.err").read_text() == ""  # on a reader's terminal it would be alarming


def test_tutorial_of_payouts_shows_the_files_that_are_shipped() -> None:
    shown = [block.text for block in blocks("yaml", PAYOUTS)]

    for name in ("payouts.yaml", "monthly.yaml"):
        assert (ROOT / "examples" / "payouts" / name).read_text("utf-8") in shown


@pytest.mark.timeout(180)
def test_tutorial_of_deployments_prints_what_it_says(folder: Path) -> None:
    [port] = free_ports(1)
    here = f"127.0.0.1:{port}"
    shutil.copytree(ROOT / "examples" / "deployment", folder / "examples" / "deployment")
    jobs = folder / "examples" / "deployment" / "deploy.yaml"
    jobs.write_text(jobs.read_text().replace("127.0.0.1:7790", here))
    shop = Shop(folder, port)

    try:
        reader = Reader(DEPLOYMENT, folder, shop.start(), ("127.0.0.1:7790", here))
        found = differences(reader)
    finally:
        shop.close()

    assert found == {}
