"""Get missing commands from Debian: `python3 tools/system_packages.py COMMAND…`.

Without root or apt-get nothing is done but to say so. Tests that need such a command are skipped
then, except in CI, where they fail; a benchmark goes without that peer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

DAEMONS = {  # that Debian starts with a package, now and with the machine
    "docker-registry": ("docker-registry",),
    "docker.io": ("docker", "containerd"),
    "nginx": ("nginx",),
    "openssh-server": ("ssh",),
    "pgbouncer": ("pgbouncer",),
    "redis-server": ("redis-server",),
}
PACKAGES = {  # of commands that are called otherwise
    "busybox": "busybox-static",
    "bwrap": "bubblewrap",
    "chromedriver": "chromium-driver",
    "dockerd": "docker.io",
    "go": "golang-go",
    "htpasswd": "apache2-utils",
    "ip": "iproute2",
    "sshd": "openssh-server",
}
PLACES = f"{os.environ['PATH']}:/usr/sbin"  # where a user looks, and where daemons are


def main(*commands: str) -> None:
    """Install those that are missing, if this user can; most have a package of their name."""
    wanted = [command for command in commands if not shutil.which(command, path=PLACES)]
    missing = [PACKAGES.get(command, command) for command in wanted]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() or not shutil.which("apt-get"):
        print(f"Missing, and what needs it is left out: apt-get install {names}")
        return
    print(f"Installing {names} (once) …", flush=True)
    install = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *missing]
    if run(*install):
        run("apt-get", "update", "-qq")
        run(*install)
    for package in DAEMONS.keys() & set(missing):  # whoever needs one starts his own
        for daemon in DAEMONS[package]:
            run("invoke-rc.d", daemon, "stop")
            run("update-rc.d", daemon, "disable")


def run(*command: str) -> int:
    """Its exit code; who needs it tells that it is missing."""
    return subprocess.run(command, env={**os.environ, "PATH": PLACES}, check=False).returncode


if __name__ == "__main__":
    main(*sys.argv[1:])
