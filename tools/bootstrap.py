"""Fill `.venv` with what this checkout needs: `python3 tools/bootstrap.py runtime|dev`.

Python and pip are enough. The environment is made without ensurepip, which Debian ships apart
(python3-venv), and filled by the pip that is already there: a virtual environment is no business
of an externally managed one, and mirrors and proxies in pip's configuration keep working.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
RECORD = ENVIRONMENT / "bootstrap.json"
LOCK_FILES = {
    "runtime": ["requirements/runtime.txt", "requirements/build.txt"],
    "dev": ["requirements/dev.txt"],
}
OLDEST_PYTHON = (3, 11)


def main() -> None:
    """Install the profile named on the command line, unless it is there already."""
    check_interpreter()
    profile = sys.argv[1]
    with Path(__file__).open(encoding="utf-8") as this_file:
        # Two makes at once: the second one waits here, and then finds the work done.
        fcntl.flock(this_file, fcntl.LOCK_EX)
        if not is_installed(profile):
            install(profile)


def check_interpreter() -> None:
    """Stop with advice if this Python cannot carry Rota."""
    if sys.version_info < OLDEST_PYTHON:
        found = sys.version.split()[0]
        sys.exit(f"Rota needs Python 3.11 or later, this is {found}. Try: make PYTHON=python3.12 …")


def is_installed(profile: str) -> bool:
    """Tell whether `.venv` holds the profile as the lock files have it now."""
    record = read_record()
    # The dev lock contains the runtime's.
    return any(record.get(name) == fingerprint(name) for name in (profile, "dev"))


def install(profile: str) -> None:
    """Install a profile; an environment that was moved or left unfinished is made anew."""
    print(f"Installing into .venv what {profile} needs (once, about half a minute) …", flush=True)
    if not read_record():
        venv.create(ENVIRONMENT, clear=True, symlinks=True, prompt="rota")
    RECORD.unlink(missing_ok=True)
    # Locks name all that is needed. With dependencies pip would resolve them once more, and in
    # hash mode take `name[extra]` for another, unpinned requirement than `name`.
    pip("--require-hashes", "--no-deps", *(f"--requirement={name}" for name in LOCK_FILES[profile]))
    pip("--no-deps", "--no-build-isolation", "--editable=.")
    record = {"root": str(ROOT), profile: fingerprint(profile)}
    RECORD.write_text(json.dumps(record), encoding="utf-8")


def pip(*arguments: str) -> None:
    """Run `pip install` for the environment, with a pip from outside it."""
    command = [outer_python(), "-m", "pip", f"--python={PYTHON}", "install", "-qq", *arguments]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(
            "pip failed, see above. Mirrors and proxies are taken from pip's own configuration; "
            "where pip is missing, Debian and Ubuntu have it as python3-pip."
        )


def outer_python() -> str:
    """Return the calling Python, or the one below `.venv` if that is activated."""
    if Path(sys.prefix).resolve() != ENVIRONMENT:
        return sys.executable
    return str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))


def read_record() -> dict[str, str]:
    """Return what was installed, empty if nothing usable is there."""
    if not (PYTHON.exists() and RECORD.exists()):
        return {}
    record: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8"))
    # Scripts inside a virtual environment carry its absolute path.
    return record if record["root"] == str(ROOT) else {}


def fingerprint(profile: str) -> str:
    """Digest the files that decide what is installed."""
    files = [ROOT / name for name in ["pyproject.toml", *LOCK_FILES[profile]]]
    files += [ROOT / "tools" / "build_contracts.py", *sorted(ROOT.glob("contracts/**/*.proto"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


if __name__ == "__main__":
    main()
