"""Calls of git, with nothing of what this machine says about git, and with bounds."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rota.domain.git import OLDEST_GIT
from rota.domain.masking import Masker
from rota.sources.wish import Bounds, SourceRefused, sized

_LOOK_EVERY = 0.5  # seconds, at how much there is
_KEPT = 4_000  # bytes of what git says last
# Whatever an admin or a person set for git on this machine is not for jobs.
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.attributesFile": "/dev/null",
    "credential.helper": "",
    "credential.useHttpPath": "false",
    "http.followRedirects": "false",
    "http.proxy": "",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "60",
    "protocol.allow": "never",
    "transfer.bundleURI": "false",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
    "safe.directory": "*",
}


class TooLarge(SourceRefused):
    """Git was ended, as there is more than a source may be."""


def require_git() -> None:
    """Raise `SourceRefused` unless git is one that does what it is told here."""
    try:
        told = subprocess.run(
            ["git", "--version"], env=_environment({}, {}), capture_output=True, check=False
        ).stdout
    except OSError as error:
        raise SourceRefused(f"git cannot be executed: {error.strerror}") from error
    found = re.search(rb"git version (\d+)\.(\d+)", told)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        version = last_line(told.decode(errors="replace")) or "git of an unknown version"
        oldest = ".".join(map(str, OLDEST_GIT))
        raise SourceRefused(f"{version} is too old on this worker: {oldest} or newer is needed")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call of git ended."""

    status: int
    text: str
    complaint: str  # the end of what it said on standard error
    is_too_large: bool = False


class Git:
    """Calls of git in one repository, with nothing of this machine's settings.

    What `mask` hides is nowhere in what they print: a server may repeat what it was shown.
    """

    def __init__(self, place: Path, measured: Iterable[Path], bounds: Bounds, mask: Masker) -> None:
        self.bounds = bounds
        self.mask = mask
        self._place = place
        self._measured = tuple(measured)

    def at(self, place: Path) -> Git:
        return Git(place, self._measured, self.bounds, self.mask)

    def check(
        self, *arguments: str, inside: bool = True, settings: Mapping[str, str] | None = None
    ) -> str:
        """Return what a call printed; one that fails is `SourceRefused`."""
        ending = self.run(*arguments, inside=inside, settings=settings)
        if ending.is_too_large:
            raise TooLarge(too_large("the source", self.bounds))
        if ending.status:
            raise _failed(arguments, ending.status, ending.complaint)
        return ending.text

    def run(
        self,
        *arguments: str,
        inside: bool = True,
        settings: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        is_shown: bool = True,
    ) -> Ending:
        process = self._start(arguments, inside, settings or {}, variables or {})
        complaint = _Complaint(process, self.mask, is_shown=is_shown)
        out: list[bytes] = []
        assert process.stdout is not None
        reading = threading.Thread(target=lambda: out.append(process.stdout.read()))  # type: ignore[union-attr]
        reading.start()
        is_too_large = self._wait(process)
        reading.join()
        process.stdout.close()
        text = b"".join(out).decode(errors="surrogateescape")
        # It is told by a signal that a single file is too large.
        is_too_large = is_too_large or process.returncode == -signal.SIGXFSZ
        said = complaint.end()
        is_too_large = is_too_large or "File too large" in said or "signal 25" in said
        return Ending(process.returncode, text, said, is_too_large)

    def lines(self, *arguments: str) -> Generator[str, None, None]:
        """Yield what a call prints, by zero bytes; closed early, the call is ended.

        One that fails is `SourceRefused`, once all that it printed was yielded.
        """
        process = self._start(arguments, True, {}, {})
        complaint = _Complaint(process, self.mask)
        assert process.stdout is not None
        rest = b""
        try:
            while piece := process.stdout.read1(65536):  # type: ignore[attr-defined]
                *whole, rest = (rest + piece).split(b"\0")
                yield from (line.decode(errors="surrogateescape") for line in whole)
            status = process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            said = complaint.end()
        if status:
            raise _failed(arguments, status, said)

    def _start(
        self,
        arguments: Sequence[str],
        inside: bool,
        settings: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        where = ["-C", str(self._place)] if inside else []
        return subprocess.Popen(
            ["git", *where, *arguments],
            env=_environment({**_SETTINGS, **settings}, variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=self._limit,  # no thread of this program holds a lock that it needs
        )

    def _limit(self) -> None:
        """Bound single files, such as a pack: between two looks much could come."""
        most = self.bounds.bytes + 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for its end; return whether it was ended because there is too much."""
        pause = _LOOK_EVERY
        while True:
            try:
                process.wait(pause)
            except subprocess.TimeoutExpired:
                began = time.monotonic()
                if sum(map(size_of, self._measured)) > 2 * self.bounds.bytes:
                    process.kill()
                    process.wait()
                    return True
                pause = max(_LOOK_EVERY, 10 * (time.monotonic() - began))
            else:
                return False


class _Complaint:
    """Standard error of a process: passed on, and its end kept."""

    def __init__(
        self, process: subprocess.Popen[bytes], mask: Masker, *, is_shown: bool = True
    ) -> None:
        self._process = process
        self._mask = mask
        self._is_shown = is_shown
        self._end = b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while piece := self._process.stderr.read1(4096):  # type: ignore[attr-defined]
            shown, rest = self._mask.part(rest + piece)
            self._pass_on(shown)
        self._pass_on(rest)

    def _pass_on(self, data: bytes) -> None:
        if self._is_shown:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        self._end = (self._end + data)[-_KEPT:]

    def end(self) -> str:
        self._thread.join()
        assert self._process.stderr is not None
        self._process.stderr.close()
        return self._end.decode(errors="replace")


def _failed(arguments: Sequence[str], status: int, said: str) -> SourceRefused:
    ended = f"signal {-status} ended it" if status < 0 else f"exit code {status}"
    return SourceRefused(f"git {arguments[0]} failed: {last_line(said) or ended}")


def _environment(settings: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a call: settings go this way, so that they are in no file."""
    base = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    numbered = {
        name: text
        for number, (key, value) in enumerate(settings.items())
        for name, text in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value))
    }
    return {
        **base,
        "LANG": "C",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_OPTIONAL_LOCKS": "0",
        # Without a name git makes one up for its reflog, and asks resolvers for this machine's.
        **{f"GIT_{who}_NAME": "rota" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "rota@localhost" for who in ("AUTHOR", "COMMITTER")},
        "GIT_CONFIG_COUNT": str(len(settings)),
        **numbered,
        **variables,
    }


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    total = 0
    for top, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(top, name)).st_size  # noqa: PTH118 (fast)
    return total


def too_large(url: str, bounds: Bounds) -> str:
    return (
        f"{url} is larger than {sized(bounds.bytes)}, the most that the worker's setting"
        " source_limit allows"
    )


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "")
