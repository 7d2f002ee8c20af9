"""What most runs pay for: the calls of a spawn that asks for nothing."""

from __future__ import annotations

import json
import subprocess
import sys

# Python tells each of these calls to whoever wants to audit it; that cannot be undone in a process.
AUDITED = """
import json, os, sys
from rota.guardian.cgroups import Cgroups
from rota.guardian.spawn import Command, Confinement, Spawner

spawner = Spawner(Cgroups("audited"))
null = os.open(os.devnull, os.O_RDWR)
heard = []
sys.addaudithook(lambda event, arguments: heard.append(event))
commands = [Command(("/bin/true",), {}, "/tmp", {1: null, 2: null})]
if sys.argv[1] == "confined":
    commands = [Command(("/bin/true",), {}, "/tmp", {1: null, 2: null}, Confinement())]
for command in commands * 2:
    heard.clear()
    tree = spawner.spawn("a", command)
    told = list(heard)
    os.waitpid(tree.pid, 0)
    spawner.forget(tree)
spawner._cgroups.remove()
print(json.dumps(told))
"""


def calls_of(kind: str) -> list[str]:
    command = [sys.executable, "-c", AUDITED, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: list[str] = json.loads(done.stdout)
    return told


def test_plain_process_costs_one_call_and_a_change_of_directory_each_way() -> None:
    assert calls_of("plain") == ["resource.setrlimit", "os.chdir", "os.posix_spawn", "os.chdir"]


def test_confined_process_costs_more() -> None:
    assert "os.posix_spawn" not in calls_of("confined")
