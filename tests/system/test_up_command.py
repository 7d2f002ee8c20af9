"""`rota up` as a person sees it: on a terminal, in a pipe, and with an app that is not there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from itertools import islice
from pathlib import Path

from testkit.processes import ROTA, environment, run_rota
from testkit.waiting import PATIENCE, eventually

LOG_LINE = re.compile(r"^\d\d:\d\d:\d\d \[info +\] worker\.registered +lease=", re.MULTILINE)


def printed_until_a_worker_is_there(home: Path, *, on_terminal: bool) -> str:
    """What `rota up` wrote to standard output and error."""
    ours, theirs = os.openpty() if on_terminal else os.pipe()
    environ = environment(home, log_level="info") | {"NO_COLOR": "1"}
    process = subprocess.Popen(
        [ROTA, "up"], env=environ, cwd=home.parent, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    told = bytearray()

    def is_there() -> bool:
        told.extend(os.read(ours, 65_536))
        return b"worker.registered" in told and told.endswith(b"\n")

    try:
        eventually(is_there, otherwise="no worker registered")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE.total_seconds())
        os.close(ours)
    return told.decode().replace("\r\n", "\n")


def test_log_on_a_terminal_is_for_people(home: Path) -> None:
    told = printed_until_a_worker_is_there(home, on_terminal=True)

    assert LOG_LINE.search(told), told
    assert "{" not in told
    assert "\x1b" not in told


def test_log_in_a_pipe_is_for_programs(home: Path) -> None:
    told = printed_until_a_worker_is_there(home, on_terminal=False)

    [event] = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert (event["event"], event["level"]) == ("worker.registered", "info")


def test_app_that_is_not_there_is_told_before_anything_is_said_to_be_up(home: Path) -> None:
    ended = run_rota("up", "--app", "nosuch:app", environ=environment(home))

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[0] == (
        'rota: the app nosuch:app cannot be loaded: there is no module "nosuch"'
    )


def test_what_to_type_next_works_as_it_is_printed(home: Path) -> None:
    folder = home.parent
    (folder / "shop.yaml").write_text("jobs: [{name: tidy, steps: [{run: 'true'}]}]")
    words = [str(ROTA), "up", "--apply", "shop.yaml"]
    elsewhere = {"PATH": os.defpath, "HOME": str(folder)}

    with subprocess.Popen(
        words, env=environment(home), cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        [told] = islice((line for line in process.stdout if line.startswith("Next, ")), 1)
        first, _, _ = told.partition(": ")[2].partition("   or   ")
        listed = subprocess.run(
            first,
            shell=True,
            env=elsewhere,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        process.send_signal(signal.SIGINT)

    assert first.endswith("rota job list")
    assert "tidy" in listed.stdout, listed.stderr
