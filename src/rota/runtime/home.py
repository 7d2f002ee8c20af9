"""The data folder: which files are in it, and that no other user may change them."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from rota.domain.errors import Denied, Unavailable

# What Rota itself keeps directly in the data folder. Other files there may be anybody's business:
# in a container it is also the home folder of the jobs' user.
_KEPT = (
    *("rota.db", "rota.db-wal", "rota.db-shm", "rota.db-journal", "rota.lock"),
    *("client.json", "local.token", "login_link", "key_ring", "run", "workers", "blobs"),
)
_CHANGEABLE_BY_OTHERS = 0o022
_PRIVATE_FOLDER = 0o700
_PRIVATE_FILE = 0o600


def worker_socket(home: Path) -> Path:
    """Return the socket where workers of this machine reach the server of this data folder."""
    return home.absolute() / "run" / "worker.sock"


def client_file(home: Path) -> Path:
    """Return the file with address and token for the CLI and SDK of the same user."""
    return home / "client.json"


def token_file(home: Path) -> Path:
    """Return the file with the client file's token, kept from one start to the next."""
    return home / "local.token"


def login_link_file(home: Path) -> Path:
    """Return the file with the latest login link, where it was not printed to a terminal."""
    return home / "login_link"


def key_ring_file(home: Path) -> Path:
    """Return the file with the key ring that `rota up` makes."""
    return home / "key_ring"


def worker_folder(home: Path, worker: str) -> Path:
    """Return the folder that a worker of this machine keeps between starts."""
    return home / "workers" / worker


def credential_file(folder: Path) -> Path:
    """Return the file in a worker's folder with the credential that it got when it joined."""
    return folder / "credential.json"


def secure_home(home: Path) -> None:
    """Create the data folder, or check an existing one.

    Raise `Denied` if another user owns or may change it or what Rota keeps in it; `Unavailable` if
    it cannot be created.
    """
    _make_private(home)
    _mend_modes(home, *(home / name for name in _KEPT))
    check_home(home)


def secure_worker_folder(home: Path, worker: str) -> Path:
    """Create or check the folder of a worker, with the errors of `secure_home`."""
    folder = worker_folder(home, worker)
    secure_home(home)
    _make_private(folder.parent)
    _make_private(folder)
    _mend_modes(home, folder)
    refuse_foreign(folder)
    return folder


def check_home(home: Path) -> None:
    """Check a data folder that need not exist, with the errors of `secure_home`; change nothing."""
    for path in (home, *(home / name for name in _KEPT)):
        if os.path.lexists(path):
            refuse_foreign(path)


def exchangeable_at(home: Path) -> str:
    """Return a parent folder that lets another user replace this data folder; "": none.

    That is no reason to refuse: root in a container often works in a folder of somebody outside.
    """
    for folder in home.absolute().parents:
        status = folder.stat() if folder.exists() else None
        if status and status.st_uid not in (os.geteuid(), 0):
            return f"{folder} belongs to {_user(status.st_uid)}"
        if status and status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"{folder} may be changed by everybody"
    return ""


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically by one that only its owner can read."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a server that was killed; a link itself, not its target
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_private(path: Path) -> str:
    """Read a file that `write_private` wrote; raise `OSError` also if it is a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return file.read().strip()


def _mend_modes(home: Path, *paths: Path) -> None:
    """Take from others the right to change what is ours, in a folder that they cannot enter.

    Earlier versions made some of it with whatever mode the umask allowed.
    """
    around = home.lstat()
    if around.st_uid != os.geteuid() or around.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return
    for path in paths:
        found = path.lstat() if os.path.lexists(path) else None
        if found and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
            path.chmod(stat.S_IMODE(found.st_mode) & ~_CHANGEABLE_BY_OTHERS)


def _make_private(folder: Path) -> None:
    # Each folder by itself: `parents` makes those above with the modes that the umask allows.
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"the data folder {folder} cannot be used: {error.strerror}",
            hint="make it writable, free some space, or set ROTA_HOME to another folder",
        ) from error


def refuse_foreign(path: Path) -> None:
    """Raise `Denied` if another user owns or may change this; `OSError` if it is not there."""
    for status in _stats(path):
        if status.st_uid not in (os.geteuid(), 0):
            raise Denied(
                f"{path} is not used: it belongs to {_user(status.st_uid)}, {_mode(status)}, and"
                f" this is {_user(os.geteuid())}",
                code="unsafe_home",
                hint="set ROTA_HOME to a folder of your own, or remove this one if nobody needs it",
            )
        if _is_changeable_by_others(status):
            raise Denied(
                f"{path} is not used: others than its owner {_user(status.st_uid)} may change it,"
                f" {_mode(status)}",
                code="unsafe_home",
                hint=f"if you trust what is in it: chmod go-w {path}",
            )


def _stats(path: Path) -> Iterator[os.stat_result]:
    """Yield the stat of the path itself, and of its target if it is a link."""
    status = path.lstat()
    yield status
    if stat.S_ISLNK(status.st_mode) and path.exists():
        yield path.stat()


def _is_changeable_by_others(status: os.stat_result) -> bool:
    # The mode of a link means nothing, and who may replace it is told by its folder.
    return not stat.S_ISLNK(status.st_mode) and bool(status.st_mode & _CHANGEABLE_BY_OTHERS)


def _mode(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):04o}"


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
