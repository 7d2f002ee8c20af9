"""Install from Debian what system tests need beside Python: `python3 tools/system_packages.py`.

Without root or apt-get nothing is done: the tests that need a package are skipped then, except in
CI, where they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess

PACKAGES = {"faketime": "faketime", "openssl": "openssl"}  # command → package


def main() -> None:
    """Install the packages whose commands are missing, if this user can."""
    missing = [package for command, package in PACKAGES.items() if not shutil.which(command)]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() or not shutil.which("apt-get"):
        print(f"Some tests need more, and are skipped without it: apt-get install {names}")
        return
    print(f"Installing {names} for the system tests (once) …", flush=True)
    install = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *missing]
    if subprocess.run(install, check=False).returncode:
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(install, check=False)


if __name__ == "__main__":
    main()
