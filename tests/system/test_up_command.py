"""`rota up` as a person sees it: on a terminal, in a pipe, and with an app that is not there."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
from itertools import islice
from pathlib import Path

import httpx

from testkit.processes import ROTA, RotaUp, environment, run_rota
from testkit.waiting import PATIENCE, eventually

LINK_LINE = re.compile(r"^open http://127\.0\.0\.1:\d+/login\?token=rotal_\w+ \(once", re.MULTILINE)
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


def test_the_login_link_is_printed_to_a_terminal_only(home: Path) -> None:
    on_terminal = printed_until_a_worker_is_there(home, on_terminal=True)
    in_pipe = printed_until_a_worker_is_there(home, on_terminal=False)

    assert LINK_LINE.search(on_terminal), on_terminal
    assert "rotal_" not in in_pipe
    assert f"open the link in {home}/login_link (once, within 10 minutes; another: " in in_pipe
    assert not (home / "login_link").exists(), "it ends with the server"


def test_a_link_in_a_file_is_for_its_owner_alone_and_a_new_one_ends_it(rota: RotaUp) -> None:
    file = rota.home / "login_link"
    first = file.read_text().strip()

    made = rota.command("login-link")
    second = file.read_text().strip()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.stdout.strip() == str(file)
    assert second.startswith(f"{rota.client.server.url}/login?token=rotal_")
    assert httpx.get(first, trust_env=False).status_code == 401
    assert httpx.get(second, trust_env=False).status_code == 303
    assert httpx.get(second, trust_env=False).status_code == 401


def test_without_a_server_there_is_no_link(home: Path) -> None:
    ended = run_rota("login-link", environ=environment(home))

    assert ended.returncode == 3
    assert "no server runs on the data folder" in ended.stderr
    assert not home.exists()


def test_the_key_ring_is_made_and_told_once(home: Path) -> None:
    first = printed_until_a_worker_is_there(home, on_terminal=False)
    second = printed_until_a_worker_is_there(home, on_terminal=False)

    ring = home / "key_ring"
    assert stat.S_IMODE(ring.stat().st_mode) == 0o600
    assert f"made {ring}: it protects copies of the database, not this folder" in first
    assert "made " not in second.replace(str(home), "")
