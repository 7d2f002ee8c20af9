"""Install from Debian what system tests need beside Python: `python3 tools/system_packages.py`.

Without root or apt-get nothing is done: the tests that need a package are skipped then, except in
CI, where they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess

PACKAGES = {"faketime": "faketime", "openssl": "openssl", "pgbouncer": "pgbouncer"}  # by command
DAEMONS = {"pgbouncer"}  # packages of which Debian starts one, now and with the machine
PLACES = f"{os.environ['PATH']}:/usr/sbin"  # where a user looks, and where daemons are


def main() -> None:
    """Install the packages whose commands are missing, if this user can."""
    missing = [
        package for command, package in PACKAGES.items() if not shutil.which(command, path=PLACES)
    ]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() or not shutil.which("apt-get"):
        print(f"Some tests need more, and are skipped without it: apt-get install {names}")
        return
    print(f"Installing {names} for the system tests (once) …", flush=True)
    install = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *missing]
    if run(*install):
        run("apt-get", "update", "-qq")
        run(*install)
    for daemon in DAEMONS.intersection(missing):  # tests start their own
        run("invoke-rc.d", daemon, "stop")
        run("update-rc.d", daemon, "disable")


def run(*command: str) -> int:
    """Its exit code; a test tells what is missing if it failed."""
    return subprocess.run(command, env={**os.environ, "PATH": PLACES}, check=False).returncode


if __name__ == "__main__":
    main()
